"""What Weft costs, as ratios within one run; `make bench`."""
