"""The caller of a request, and the rights of the caller."""
