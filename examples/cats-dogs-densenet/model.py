"""For train.py and pretrain.py: the network, and the devices that it is trained on."""

from pathlib import Path

import keras
import tensorflow as tf
from keras import layers

BLOCK_ENDS = ("pool2_pool", "pool3_pool", "pool4_pool", "relu")  # the layers after DenseNet's four dense blocks
MEAN, DEVIATION = (
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
)  # of ImageNet, from 0 to 1


def backbone(blocks: int) -> keras.Model:
    """DenseNet-121 (Huang et al., Densely Connected Convolutional Networks, 2016, arXiv:1608.06993) without its head,
    up to the end of its first ``blocks`` dense blocks; 4 is all of it. Takes images of any size from 32×32."""
    whole = keras.applications.DenseNet121(include_top=False, weights=None)
    return keras.Model(whole.inputs, whole.get_layer(BLOCK_ENDS[blocks - 1]).output, name="densenet121")


def classifier(features: keras.Model, size: int, classes: int, dropout: float) -> keras.Model:
    """Images (n, size, size, 3) with values from 0 to 255 → logits (n, classes), as float32 in any precision."""
    inputs = keras.Input((size, size, 3))
    normalized = layers.Normalization(
        mean=[255 * channel for channel in MEAN], variance=[(255 * channel) ** 2 for channel in DEVIATION]
    )(inputs)
    pooled = layers.Dropout(dropout)(layers.GlobalAveragePooling2D()(features(normalized)))
    return keras.Model(inputs, layers.Dense(classes, dtype="float32", name="head")(pooled))


def copy_weights(stored: Path, features: keras.Model) -> None:
    """From a stored backbone.keras, which may have more dense blocks than ``features``, but not fewer."""
    pretrained = keras.saving.load_model(stored, compile=False)
    known = {layer.name: layer for layer in pretrained.layers}
    for layer in features.layers:
        if not layer.weights:
            continue
        shapes = [weight.shape for weight in known[layer.name].weights] if layer.name in known else None
        if shapes != [weight.shape for weight in layer.weights]:
            raise SystemExit(f"{stored} is no DenseNet-121 with so many dense blocks: it lacks layer {layer.name}")
        layer.set_weights(known[layer.name].get_weights())


def compile_for(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """The measures use the weights of the held-out images, which Keras's own mean of the loss does only in part."""
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="cross_entropy"),
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
        ],
    )


def devices(cpu_devices: int) -> list[str]:
    """All GPUs, or the CPU as so many logical devices."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return [f"GPU:{index}" for index in range(len(gpus))]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * cpu_devices)
    return [f"CPU:{index}" for index in range(cpu_devices)]


def set_precision(wanted: str) -> str:
    """The precision of Keras's computations from now on: ``auto`` is mixed_float16 on GPUs, float32 otherwise."""
    if wanted == "auto":
        wanted = "mixed_float16" if tf.config.list_physical_devices("GPU") else "float32"
    keras.mixed_precision.set_global_policy(wanted)
    return wanted


class RandomNumbers(keras.callbacks.Callback):
    """Dropout's random numbers belong to the epoch: files of weights do not keep them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def on_epoch_begin(self, epoch, logs=None) -> None:
        for layer in self.model.layers:
            if isinstance(layer, layers.Dropout):
                layer.seed_generator.state.assign([self.seed, epoch])


class Progress(keras.callbacks.Callback):
    """A line at each epoch's end; Keras's own bar is not for logs."""

    def __init__(self, phase: str) -> None:
        super().__init__()
        self.phase = phase

    def on_epoch_end(self, epoch, logs=None) -> None:
        names = ("cross_entropy", "accuracy", "val_cross_entropy", "val_accuracy")
        shown = "  ".join(f"{name.replace('_', ' ').replace('val', 'validation')} {logs[name]:.4f}" for name in names)
        print(f"{self.phase}: epoch {epoch + 1}/{self.params['epochs']}  {shown}", flush=True)
