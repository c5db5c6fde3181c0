"""Batch scripts of Slurm's: their directives, and the manifest that they become."""
