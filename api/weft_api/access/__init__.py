"""Who calls, and what the caller may reach."""
