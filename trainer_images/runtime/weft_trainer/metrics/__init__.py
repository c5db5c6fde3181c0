"""The sources of metrics (docs/metrics.md): training code, event files, log, machine; and their way to the API."""
