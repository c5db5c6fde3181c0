"""The registry of models: versions of jobs' results, with their lineage, and stages."""
