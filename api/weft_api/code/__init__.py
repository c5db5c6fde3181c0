"""Code bundles, by the sha256 of their bytes."""
