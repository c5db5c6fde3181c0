"""Jobs: submit, list, read, halt, resume, rerun, delete."""
