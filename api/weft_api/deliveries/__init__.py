"""The notifications of a job: to whom they were sent, with what outcome, and once more."""
