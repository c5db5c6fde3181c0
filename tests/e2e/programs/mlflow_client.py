"""The calls of Lightning's MLFlowLogger, which has no active run: the client alone, with a run of its own."""

import time

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.tracking.context.registry import resolve_tags

client = MlflowClient()
if client.get_experiment_by_name("lightning_logs") is None:
    client.create_experiment("lightning_logs")
experiment = client.get_experiment_by_name("lightning_logs").experiment_id
run = client.create_run(experiment_id=experiment, tags=resolve_tags({"mlflow.runName": "regression"})).info.run_id
client.log_batch(run_id=run, params=[Param("rate", "0.05")])
client.log_batch(run_id=run, metrics=[Metric("loss", 1 / (at + 1), int(time.time() * 1000), at) for at in range(3)])
client.set_terminated(run, "FINISHED")
assert client.get_run(run).data.params["rate"] == "0.05"
print(f"logged with MLflow {mlflow.__version__}")
