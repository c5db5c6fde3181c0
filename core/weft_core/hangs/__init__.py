"""The verdict on a gang that makes no progress. docs/stalls.md describes it for users."""
