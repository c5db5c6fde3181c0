"""The metrics of trainings: taken in from learners, kept as records and as series, read for a chart's width."""
