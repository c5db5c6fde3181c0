"""Sessions of browsers: the dashboard's way in."""
