"""Following jobs, and bytes that are made while they are sent."""
