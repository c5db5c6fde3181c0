"""The stores of objects: a user's S3 and the installation's own store, behind one interface; uploads and retries."""
