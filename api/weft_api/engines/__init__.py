"""Engines with their load, and what manifests can ask for."""
