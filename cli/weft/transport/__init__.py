"""How requests and bytes get to the server and to S3: retries, server-sent events, uploads and downloads."""
