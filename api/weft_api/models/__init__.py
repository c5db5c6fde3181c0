"""The registry of models: versions of what jobs have left, with their lineage, and stages."""
