"""Schedules: stored manifests that start jobs at times, and at promotions of a model."""
