"""Logs with MLflow's client, of any version, without any code for Weft."""

import mlflow
from mlflow import MlflowClient

mlflow.set_experiment("digits")
with open("notes.txt", "w") as file:
    file.write("some notes")
with mlflow.start_run(run_name="baseline") as run:
    mlflow.log_params({"lr": 0.1, "layers": [3, 5]}, synchronous=False)  # as transformers does
    mlflow.set_tag("team", "vision")
    for step in range(5):
        mlflow.log_metrics({"train/loss": 1 / (step + 1), "acc": step / 10}, step=step)
    mlflow.log_artifact("notes.txt", artifact_path="texts")
    with mlflow.start_run(nested=True, run_name="fold"):
        mlflow.log_metric("acc", 0.5)
client = MlflowClient()
kept = client.get_run(run.info.run_id)
assert kept.data.params == {"lr": "0.1", "layers": "[3, 5]"}, kept.data.params
assert kept.data.metrics["acc"] == 0.4, kept.data.metrics
assert [metric.step for metric in client.get_metric_history(run.info.run_id, "acc")] == [0, 1, 2, 3, 4]
assert [entry.path for entry in client.list_artifacts(run.info.run_id, "texts")] == ["texts/notes.txt"]
assert mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/texts/notes.txt") == "some notes"
found = mlflow.search_runs(experiment_names=["digits"], output_format="list", filter_string="params.lr = '0.1'")
assert [entry.info.run_id for entry in found] == [run.info.run_id], found
print(f"logged with MLflow {mlflow.__version__}")
