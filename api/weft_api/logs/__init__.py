"""Log lines: taken in from learners, read in ranges, followed."""
