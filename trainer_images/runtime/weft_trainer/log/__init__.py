"""The learner's log: bytes that programs write become lines, and lines go to the API, within the log's limits."""
