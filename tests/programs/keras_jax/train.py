"""Keras 3 on JAX: DataParallel over all processes, which keras.distribution.initialize() finds in the environment."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np

keras.distribution.initialize()
rank, world = jax.process_index(), jax.process_count()
keras.utils.set_random_seed(0)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
inputs = np.random.default_rng(rank).normal(size=(64, 8)).astype("float32")  # each process has data of its own
model.fit(inputs, inputs.sum(axis=1, keepdims=True), batch_size=16, epochs=2, shuffle=False, verbose=2)
total = sum(float(np.asarray(weight, dtype="float64").sum()) for weight in model.get_weights())
print(f"world {world} rank {rank} parameters {total:.10f}", flush=True)
