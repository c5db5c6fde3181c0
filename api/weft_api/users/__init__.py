"""Users of the installation."""
