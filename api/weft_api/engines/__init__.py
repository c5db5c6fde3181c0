"""Engines with their load, and the images that manifests can ask for."""
