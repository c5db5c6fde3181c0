"""Handwritten digits with Keras and Horovod: every learner trains on its share, Horovod averages the gradients.

Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR, and starts this program once a learner with all that hvd.init()
needs.

Horovod's own Keras optimizer knows Keras 2 only. For Keras 3 it takes little: an optimizer that averages the gradients
before it applies them, and one broadcast at the start.
"""

import argparse
import math
import os
from pathlib import Path

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the same sums in the same order, always; read when TensorFlow is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from model import LearningRate, Progress, RandomNumbers, batches, network, read_digits

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.weights.h5"


def say(line: str) -> None:
    """Only the first process prints, for all of them: averages over all processes."""
    if hvd.rank() == 0:
        print(line, flush=True)


class AveragedSGD(keras.optimizers.SGD):
    """SGD with the gradients' average over all processes."""

    def apply(self, grads, trainable_variables=None):
        return super().apply(hvd.grouped_allreduce(list(grads), op=hvd.Average), trainable_variables)


class AveragedMetrics(keras.callbacks.Callback):
    """An epoch's loss and accuracy become the average over all processes, for the callbacks after this one."""

    def on_epoch_end(self, epoch, logs=None) -> None:
        names = sorted(logs)
        averages = hvd.allreduce(tf.constant([logs[name] for name in names]), op=hvd.Average)
        logs.update(zip(names, averages.numpy().tolist(), strict=True))


def log_epoch(epoch: int, logs: dict) -> None:
    log_metrics(loss=logs["loss"], accuracy=logs["accuracy"], step=epoch + 1, group="train")


def save_checkpoint(model: keras.Model) -> None:
    """Weights and optimizer, at once or not at all: a learner may be stopped at any moment, also while it writes."""
    part = CHECKPOINT.with_name("part.weights.h5")
    model.save_weights(part)
    part.replace(CHECKPOINT)


def test(model: keras.Model) -> tuple[float, int]:
    """Accuracy on the held-out digits, of which each process takes its share, and how many they are."""
    images, labels = (part[hvd.rank() :: hvd.size()] for part in read_digits(DATA, "t10k"))
    right = (model.predict(images, verbose=0).argmax(axis=1) == labels).sum()
    right, digits = hvd.allreduce(tf.constant([right, len(labels)], tf.float32), op=hvd.Sum).numpy()
    return right / digits, int(digits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="of one process alone")
    parser.add_argument("--warmup-epochs", type=float, default=2)
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    hvd.init()
    keras.utils.set_random_seed(args.seed + hvd.rank())  # dropout and order differ; the weights get equal below
    tf.config.experimental.enable_op_determinism()  # the same run again gives the same numbers, a little slower
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    print(f"rank {hvd.rank()} of {hvd.size()} on {'cuda' if gpus else 'cpu'}", flush=True)

    # Each process trains on its share of the digits. All shares are of one size, or one process would wait for ever for
    # a step that the others don't make.
    images, labels = read_digits(DATA, "train")
    size = len(images) // hvd.size()
    images, labels = (part[hvd.rank() :: hvd.size()][:size] for part in (images, labels))
    steps = math.ceil(size / args.batch_size)

    model = network()
    model.compile(
        AveragedSGD(args.learning_rate, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,  # XLA knows nothing of Horovod's operations
    )
    model.optimizer.build(model.trainable_variables)
    if (
        hvd.rank() == 0 and CHECKPOINT.exists()
    ):  # an earlier attempt of this job was interrupted: go on after its last epoch
        model.load_weights(CHECKPOINT)
        say(f"resuming after epoch {int(model.optimizer.iterations) // steps} from {CHECKPOINT.name}")
    # All begin with the state of the first process: fresh weights or the checkpoint.
    state = [*model.variables, *model.optimizer.variables]
    hvd.broadcast_variables([variable.value for variable in state], root_rank=0)
    start = int(model.optimizer.iterations) // steps

    seed = args.seed + hvd.rank()  # of the order of digits, and of dropout
    callbacks = [
        RandomNumbers(seed),
        AveragedMetrics(),
        LearningRate(args.learning_rate, hvd.size(), args.warmup_epochs, args.epochs),
        Progress(say, args.epochs, args.log_every),
    ]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=log_epoch))
        callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: save_checkpoint(model)))
    model.fit(
        batches(images, labels, args.batch_size, range(start, args.epochs), seed),
        steps_per_epoch=steps,
        shuffle=False,  # the batches are in their order
        epochs=args.epochs,
        initial_epoch=start,
        callbacks=callbacks,
        verbose=0,
    )

    accuracy, held_out = test(model)
    say(f"test accuracy {accuracy:.4f} on {held_out} held-out digits")
    if hvd.rank() == 0:
        log_metrics(accuracy=accuracy, step=args.epochs, group="test")
        trained = network()  # without the optimizer, so that loading it needs no Horovod
        trained.set_weights(model.get_weights())
        trained.save(RESULTS / "model.keras")
        say("saved model.keras")
    hvd.shutdown()


if __name__ == "__main__":
    main()
