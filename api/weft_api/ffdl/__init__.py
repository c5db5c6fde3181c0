"""FfDL's v1 API, for its clients, scripts and manifests: a translation over the services that /api/v1 uses, no more."""
