"""Handwritten digits with Keras and tf.distribute.MirroredStrategy: one learner, a replica of the model on each of its
devices, each replica takes its share of every batch and the gradients are averaged.

Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR. On GPUs the replicas are on all that the learner has; without one,
the CPU is made to look like two devices.
"""

import argparse
import math
import os
from pathlib import Path

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the same sums in the same order, always; read when TensorFlow is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from model import LearningRate, Progress, RandomNumbers, batches, network, read_digits

DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.weights.h5"


def say(line: str) -> None:
    print(line, flush=True)


def devices(wanted: int) -> list[str]:
    """All GPUs, or the CPU as so many logical devices."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return [f"GPU:{index}" for index in range(len(gpus))]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * wanted)
    return [f"CPU:{index}" for index in range(wanted)]


def save_checkpoint(model: keras.Model) -> None:
    """Weights and optimizer, at once or not at all: a learner may be stopped at any moment, also while it writes."""
    part = CHECKPOINT.with_name("part.weights.h5")
    model.save_weights(part)
    part.replace(CHECKPOINT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="of each replica")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="of one replica alone")
    parser.add_argument("--warmup-epochs", type=float, default=2)
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu-devices", type=int, default=2, help="replicas when there is no GPU")
    args = parser.parse_args()

    keras.utils.set_random_seed(args.seed)
    tf.config.experimental.enable_op_determinism()  # the same run again gives the same numbers, a little slower
    names = devices(args.cpu_devices)
    strategy = tf.distribute.MirroredStrategy(names)
    replicas = strategy.num_replicas_in_sync
    say(f"training on {replicas} replicas: {', '.join(names)}")

    images, labels = read_digits(DATA, "train")
    batch = args.batch_size * replicas  # fit() deals each batch out to the replicas
    steps = math.ceil(len(images) / batch)

    with strategy.scope():  # every variable made in here has a copy on each device, kept equal
        model = network()
        model.compile(
            keras.optimizers.SGD(args.learning_rate, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        model.optimizer.build(model.trainable_variables)
        if CHECKPOINT.exists():  # an earlier attempt of this job was interrupted: go on after its last epoch
            model.load_weights(CHECKPOINT)
    start = int(keras.ops.convert_to_numpy(model.optimizer.iterations)) // steps
    if start:
        say(f"resuming after epoch {start} from {CHECKPOINT.name}")

    model.fit(
        batches(images, labels, batch, range(start, args.epochs), args.seed),
        steps_per_epoch=steps,
        shuffle=False,  # the batches are in their order
        epochs=args.epochs,
        initial_epoch=start,
        callbacks=[
            RandomNumbers(args.seed),
            LearningRate(args.learning_rate, replicas, args.warmup_epochs, args.epochs),
            Progress(say, args.epochs, args.log_every),
            keras.callbacks.TensorBoard(os.environ.get("LOG_DIR", "logs")),  # Weft shows the curves of event files
            keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: save_checkpoint(model)),
        ],
        verbose=0,
    )

    images, labels = read_digits(DATA, "t10k")
    right = (model.predict(images, verbose=0).argmax(axis=1) == labels).sum()
    say(f"test accuracy {right / len(labels):.4f} on {len(labels)} held-out digits")
    trained = network()  # on one device and without the optimizer: the model to use
    trained.set_weights(model.get_weights())
    trained.save(RESULTS / "model.keras")
    say("saved model.keras")


if __name__ == "__main__":
    main()
