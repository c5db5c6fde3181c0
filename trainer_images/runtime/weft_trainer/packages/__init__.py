"""A package build: a job's packages that its image lacks are resolved and become an overlay (docs/packages.md)."""
