"""For train.py and evaluate.py: the network, reading the digits, and printing progress."""

import gzip
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def network() -> keras.Model:
    """Two convolutions and two dense layers: 98 % of handwritten digits, and seconds on one core."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.25),
            layers.Dense(10),
        ]
    )


def read_digits(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """MNIST's files `<name>-images-…` and `<name>-labels-…`: images (n, 28, 28, 1) from 0 to 1, labels (n)."""
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return pixels.astype(np.float32) / 255, labels.astype(np.int64)


def batches(images: np.ndarray, labels: np.ndarray, size: int, epochs: range, seed: int) -> tf.data.Dataset:
    """All digits once an epoch, in an order that belongs to the epoch: a resume has the same."""

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.experimental.stateless_shuffle(
            tf.range(len(images)), tf.stack([seed, tf.cast(number, tf.int32)])
        )
        return tf.data.Dataset.from_tensor_slices((tf.gather(images, order), tf.gather(labels, order))).batch(size)

    return tf.data.Dataset.range(epochs.start, epochs.stop).flat_map(epoch)


def seed_dropout(model: keras.Model, seed: int, epoch: int) -> None:
    """Dropout's random numbers belong to the epoch, too: files of weights do not keep them."""
    for layer in model.layers:
        if isinstance(layer, layers.Dropout):
            layer.seed_generator.state.assign([seed, epoch])


class RandomNumbers(keras.callbacks.Callback):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def on_epoch_begin(self, epoch, logs=None) -> None:
        seed_dropout(self.model, self.seed, epoch)


class LearningRate(keras.callbacks.Callback):
    """`base` × replicas, as so many times more digits go into each step; reached slowly, since a start at that speed
    may diverge, then down to 0 in a straight line."""

    def __init__(self, base: float, replicas: int, warmup_epochs: float, epochs: int) -> None:
        super().__init__()
        self.base, self.peak, self.warmup, self.epochs = base, base * replicas, warmup_epochs, epochs

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None) -> None:
        done = self.epoch + batch / self.params["steps"]
        if done < self.warmup:
            rate = self.base + (self.peak - self.base) * done / self.warmup
        else:
            rate = self.peak * (self.epochs - done) / (self.epochs - self.warmup)
        self.model.optimizer.learning_rate = rate


class Progress(keras.callbacks.Callback):
    """A line every few steps and one at each epoch's end (Keras's own bar is not for logs): means over the epoch so
    far."""

    def __init__(self, say, epochs: int, every: int) -> None:
        super().__init__()
        self.say, self.epochs, self.every = say, epochs, every

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self.where = f"epoch {epoch + 1}/{self.epochs}"

    def on_train_batch_end(self, batch, logs=None) -> None:
        if (batch + 1) % self.every == 0:
            self.say(f"{self.where}  step {batch + 1}/{self.params['steps']}  loss {logs['loss']:.4f}")

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.say(f"{self.where}  loss {logs['loss']:.4f}  accuracy {logs['accuracy']:.4f}")
