"""The results of a job: its files, its trained model as a zip, and the code that made it."""
