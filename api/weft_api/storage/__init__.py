"""The S3 stores of users."""
