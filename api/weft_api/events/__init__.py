"""The events of a job, in order: read and followed."""
