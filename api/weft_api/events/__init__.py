"""What happened to a job, in order: read and followed."""
