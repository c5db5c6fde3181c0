"""The web page: static files that `make dashboard` builds, served under ``/``. All it knows it gets from the API."""
