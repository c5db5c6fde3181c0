"""MLflow's tracking API over Weft's jobs, for unmodified clients of MLflow (docs/mlflow.md)."""
