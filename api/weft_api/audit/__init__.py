"""The audit trail: its records are written for all routes, and read by administrators and owners."""
