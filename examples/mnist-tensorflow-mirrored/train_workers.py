"""The same training as train.py over several learners: MultiWorkerMirroredStrategy where Weft has set TF_CONFIG, which
it does for two learners or more, else MirroredStrategy. Each replica, one a GPU or one a learner without, takes its
share of every batch, and the gradients are added up.

Keras 3's fit() does not know several workers, so the loop is written out.
"""

import argparse
import os
from pathlib import Path

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the same sums in the same order, always; read when TensorFlow is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from model import network, read_digits, seed_dropout

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.weights.h5"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="of each replica")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="of one replica alone")
    parser.add_argument("--warmup-epochs", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def learning_rate(args, replicas: int, done: float) -> float:
    """`args.learning_rate` × replicas, reached slowly, then down to 0 in a straight line. `done` counts epochs."""
    peak = args.learning_rate * replicas
    if done < args.warmup_epochs:
        return args.learning_rate + (peak - args.learning_rate) * done / args.warmup_epochs
    return peak * (args.epochs - done) / (args.epochs - args.warmup_epochs)


class Training:
    def __init__(self, args, strategy: tf.distribute.Strategy) -> None:
        self.args, self.strategy = args, strategy
        self.replicas = strategy.num_replicas_in_sync
        self.batch = args.batch_size * self.replicas
        with strategy.scope():  # every variable made in here has a copy on each replica, kept equal
            self.model = network()
            self.model.compile(keras.optimizers.SGD(args.learning_rate, momentum=0.9))
            self.model.optimizer.build(self.model.trainable_variables)
            if CHECKPOINT.exists():  # an earlier attempt of this job was interrupted; all learners have its checkpoint
                self.model.load_weights(CHECKPOINT)

    def batches(self, images: np.ndarray, labels: np.ndarray, epoch: int):
        """All digits in an order that changes with the epoch and is the same every run; each replica gets its share."""
        order = np.random.default_rng([self.args.seed, epoch]).permutation(len(images))
        digits = tf.data.Dataset.from_tensor_slices((images[order], labels[order]))
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        # There is nothing to tune, and at an iterator's end its tuner is waited for: seconds, then twice as many, …
        options.autotune.enabled = False
        whole = digits.batch(self.batch, drop_remainder=True).with_options(options)
        return self.strategy.experimental_distribute_dataset(whole)

    @tf.function
    def step(self, images, labels):
        """Sums over all replicas: of the losses, and of the right answers."""

        def replica(images, labels):
            with tf.GradientTape() as tape:
                outputs = self.model(images, training=True)
                losses = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
                loss = tf.reduce_sum(losses) / self.batch  # gradients are added up, not averaged
            weights = self.model.trainable_variables
            self.model.optimizer.apply(tape.gradient(loss, weights), weights)
            right = tf.cast(tf.argmax(outputs, axis=1) == labels, tf.float32)
            return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(right)])

        return self.strategy.reduce("SUM", self.strategy.run(replica, args=(images, labels)), axis=None)

    def epoch(self, images: np.ndarray, labels: np.ndarray, epoch: int) -> tuple[float, float]:
        """Loss and accuracy, means over the epoch."""
        steps = len(images) // self.batch
        seen = np.zeros(2)
        seed_dropout(self.model, self.args.seed, epoch)
        for step, batch in enumerate(self.batches(images, labels, epoch)):
            self.model.optimizer.learning_rate = learning_rate(self.args, self.replicas, epoch + step / steps)
            seen += self.step(*batch).numpy()
        loss, accuracy = seen / (steps * self.batch)
        return loss, accuracy

    def save(self) -> None:
        """Weights and optimizer, at once or not at all: a learner may be stopped while it writes."""
        part = CHECKPOINT.with_name("part.weights.h5")
        self.model.save_weights(part)
        part.replace(CHECKPOINT)


def main() -> None:
    args = arguments()
    over_learners = "TF_CONFIG" in os.environ
    kind = "MultiWorkerMirroredStrategy" if over_learners else "MirroredStrategy"
    strategy = getattr(tf.distribute, kind)()
    worker = strategy.cluster_resolver.task_id if over_learners else 0
    keras.utils.set_random_seed(args.seed)

    def say(line: str) -> None:
        """Only the first learner prints, for all of them: sums and means over all learners."""
        if worker == 0:
            print(line, flush=True)

    training = Training(args, strategy)
    print(f"learner {worker + 1}: {kind}, {training.replicas} replicas in all", flush=True)
    images, labels = read_digits(DATA, "train")
    done = int(keras.ops.convert_to_numpy(training.model.optimizer.iterations)) // (len(images) // training.batch)
    if done:
        say(f"resuming after epoch {done} from {CHECKPOINT.name}")
    for epoch in range(done, args.epochs):
        loss, accuracy = training.epoch(images, labels, epoch)
        say(f"epoch {epoch + 1}/{args.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}")
        if worker == 0:
            log_metrics(loss=loss, accuracy=accuracy, step=epoch + 1, group="train")
            training.save()

    if worker == 0:
        trained = network()  # on one device and without the optimizer: the model to use
        trained.set_weights(training.model.get_weights())
        images, labels = read_digits(DATA, "t10k")
        accuracy = float((trained.predict(images, verbose=0).argmax(axis=1) == labels).mean())
        say(f"test accuracy {accuracy:.4f} on {len(labels)} held-out digits")
        log_metrics(accuracy=accuracy, step=args.epochs, group="test")
        trained.save(RESULTS / "model.keras")
        say("saved model.keras")


if __name__ == "__main__":
    main()
