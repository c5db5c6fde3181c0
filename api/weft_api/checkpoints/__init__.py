"""The checkpoints that a job has stored: what there are, and a copy of the last one for another job to begin with."""
