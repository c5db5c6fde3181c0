"""The notifications of a job: their receivers and outcomes, and how to send one again."""
