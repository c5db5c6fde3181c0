"""RESULT_DIR: published in a store with a manifest, and copied to a mounted folder."""
