"""``weft up``: PostgreSQL, Redis, S3, API and worker on one machine, from wheels, as one process tree."""
