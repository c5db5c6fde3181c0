"""Many short jobs while everything that runs them is killed and frozen: `make chaos`."""
