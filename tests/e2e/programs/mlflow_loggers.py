"""Trains a moment with a library that logs with MLflow by itself, as the library's documentation has it."""

import os
import sys

import numpy
import torch

inputs = torch.randn(64, 8)
targets = inputs.sum(dim=1, keepdim=True)


def lightning():
    import lightning
    from lightning.pytorch.loggers import MLFlowLogger

    class Regression(lightning.LightningModule):
        def __init__(self, rate=0.05):
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, _):
            loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.hparams.rate)

    logger = MLFlowLogger(
        experiment_name="lightning_logs", run_name="regression", tags={"team": "vision"}, log_model=True
    )
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=8)
    trainer = lightning.Trainer(max_epochs=2, logger=logger, log_every_n_steps=4, accelerator="cpu")
    trainer.fit(Regression(), data)


def transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    os.environ["HF_MLFLOW_LOG_ARTIFACTS"] = "1"
    os.environ["MLFLOW_TAGS"] = '{"team": "vision"}'
    sequences = [{"input_ids": (ids := (torch.arange(16) + at) % 32), "labels": ids} for at in range(32)]
    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(
        output_dir="out", max_steps=4, per_device_train_batch_size=4, logging_steps=2, save_steps=4, report_to="mlflow"
    )
    Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=sequences).train()


def keras():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import mlflow.keras

    mlflow.keras.autolog()
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
    model.fit(inputs.numpy(), targets.numpy(), epochs=3, verbose=0)


def sklearn():
    import mlflow

    mlflow.autolog()
    from sklearn.linear_model import LogisticRegression

    with mlflow.start_run():
        mlflow.set_tag("team", "vision")
        LogisticRegression(C=0.5).fit(inputs.numpy(), numpy.ravel(targets.numpy()) > 0)


{"lightning": lightning, "transformers": transformers, "keras": keras, "sklearn": sklearn}[sys.argv[1]]()
