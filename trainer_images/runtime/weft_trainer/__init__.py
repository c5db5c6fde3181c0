"""Weft's agent: what runs inside a learner, in a process, an actor or a pod alike. It speaks HTTP and S3 only."""
