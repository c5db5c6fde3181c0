"""The web page: static files that `make dashboard` builds, served under ``/``. It gets all its data from the API."""
