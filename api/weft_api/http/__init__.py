"""The parts of requests and answers that all features share."""
