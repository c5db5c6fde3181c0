"""Profiles of running jobs: traces and stacks, which learners' agents have recorded and stored."""
