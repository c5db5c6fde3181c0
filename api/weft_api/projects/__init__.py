"""Projects (the tenants), their members and their quotas."""
