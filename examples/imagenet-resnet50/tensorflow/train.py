"""ResNet-50 on ImageNet with TensorFlow: a training loop of its own over tf.data, alone or with Horovod.

Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR, and starts this program once a GPU (once a learner without) with
what the processes need to find each other.
"""

import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import keras
import numpy as np
import tensorflow as tf
from data import batches, find, noise
from gang import join
from model import resnet
from recipe import learning_rate, options
from report import measure, summary

STARTED = time.monotonic()


class Training:
    """The model and everything that changes with it."""

    def __init__(self, args, gang) -> None:
        self.args, self.gang = args, gang
        if args.amp:
            keras.mixed_precision.set_global_policy(f"mixed_{args.amp}")
        self.model = resnet(args.depth, args.classes, args.width, args.image_size, args.weight_decay)
        self.optimizer = keras.optimizers.SGD(args.base_lr, args.momentum, nesterov=args.momentum > 0)
        if args.amp == "float16":
            self.optimizer = keras.optimizers.LossScaleOptimizer(self.optimizer)
        self.optimizer.build(self.model.trainable_variables)
        self.epochs_done = keras.Variable(0, dtype="int32", trainable=False)
        self.state = [*self.model.variables, *self.optimizer.variables, self.epochs_done]
        if gang.rank == 0 and _checkpoint().exists() and not args.benchmark:
            # An earlier attempt of this job was interrupted: go on after its last epoch.
            with np.load(_checkpoint()) as saved:
                for index, variable in enumerate(self.state):
                    variable.assign(saved[f"arr_{index}"])
            print(f"resuming after epoch {int(self.epochs_done)} from {_checkpoint().name}", flush=True)
        gang.start_alike(self.state)

    @tf.function
    def step(self, images, labels):
        """One step on one batch; loss (mean), and how many of the images were among the first one and five."""
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            loss = keras.losses.categorical_crossentropy(
                tf.one_hot(labels, self.args.classes), logits, True, self.args.label_smoothing
            )
            loss = tf.reduce_mean(loss)
            total = self.optimizer.scale_loss(tf.add_n([loss, *self.model.losses]))  # with the weights' decay
        gradients = tape.gradient(total, self.model.trainable_variables)
        # Averaged before the optimizer looks for infinite ones, so that all find the same.
        gradients = self.gang.average(gradients, self.args.fp16_allreduce)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return tf.stack([loss, *_hits(logits, labels)])

    @tf.function
    def test(self, images, labels):
        hits = _hits(self.model(images, training=False), labels)
        return tf.stack([*hits, tf.cast(tf.shape(labels)[0], tf.float32)])

    def validate(self, data: tf.data.Dataset) -> tuple[float, float]:
        """Top-1 and top-5 accuracy over all processes' images."""
        self.gang.average_statistics(self.model)
        seen = sum((self.test(images, labels) for images, labels in data), tf.zeros(3))
        first, five, images = self.gang.sum(seen.numpy().tolist())
        return first / images, five / images

    def set_rate(self, epochs: float) -> None:
        self.optimizer.learning_rate = learning_rate(self.args, self.gang.size, epochs)

    def save(self, epoch: int) -> None:
        """At once or not at all: a learner may be stopped at any moment, also while it writes."""
        self.epochs_done.assign(epoch)
        if self.gang.rank == 0:
            part = _checkpoint().with_suffix(".part")
            with part.open("wb") as file:
                np.savez(file, *[keras.ops.convert_to_numpy(variable) for variable in self.state])
            part.replace(_checkpoint())


def _checkpoint() -> Path:
    return Path(os.environ.get("CHECKPOINT_DIR", "."), "checkpoint.npz")


def _hits(logits, labels):
    best = tf.math.top_k(logits, min(5, logits.shape[1])).indices == labels[:, None]
    best = tf.cast(best, tf.float32)
    return tf.reduce_sum(best[:, 0]), tf.reduce_sum(best)


def train_epoch(training: Training, data, epoch: int, steps: int, say, events) -> float:
    """``steps`` steps; the seconds that they took."""
    args, gang = training.args, training.gang
    begun = time.perf_counter()
    seen = tf.zeros(3)
    for step in range(steps):
        training.set_rate(epoch + step / steps)
        seen += training.step(*next(data))
        if (step + 1) % args.log_every == 0:
            loss = float(seen[0]) / (step + 1)
            rate = (step + 1) * args.batch_size * gang.size / (time.perf_counter() - begun)
            say(f"epoch {epoch + 1}/{args.epochs}  step {step + 1}/{steps}  loss {loss:.4f}  {rate:.1f} images/sec")
            with events.as_default(epoch * steps + step + 1):
                tf.summary.scalar("train/loss", loss)
                tf.summary.scalar("train/images_per_second", rate)
    loss, first, five = gang.sum(seen.numpy().tolist())  # also waits for the device
    seconds = time.perf_counter() - begun
    images = steps * args.batch_size * gang.size
    rate = learning_rate(args, gang.size, epoch + (steps - 1) / steps)
    say(
        f"epoch {epoch + 1}/{args.epochs}  loss {loss / steps / gang.size:.4f}  top-1 {first / images:.4f}  "
        f"top-5 {five / images:.4f}  learning rate {rate:g}  {images / seconds:.1f} images/sec"
    )
    with events.as_default(epoch + 1):
        scalars = {"loss": loss / steps / gang.size, "top_1": first / images, "top_5": five / images, "lr": rate}
        for name, value in scalars.items():
            tf.summary.scalar(f"epoch/{name}", value)
    return seconds


def main() -> None:
    args = options(__doc__.split("\n")[0])
    gang = join()
    device = gang.device()
    keras.utils.set_random_seed(args.seed + gang.rank)  # noise differs between processes; the weights get equal

    def say(line: str) -> None:
        if gang.rank == 0:
            print(line, flush=True)

    source = validation = None
    if not args.synthetic:
        source, validation = (find(Path(args.data_dir), split) for split in ("train", "validation"))
        if source is None:
            raise SystemExit(f"there are no images to train on in {args.data_dir}")
    args.classes = args.classes or (len(source.classes) if source else 1000)
    images = len(source) if source else args.data_length
    steps = max(1, images // (args.batch_size * gang.size))

    training = Training(args, gang)
    start = int(training.epochs_done)
    print(f"rank {gang.rank} of {gang.size} on {device}", flush=True)
    noisy = None if source else iter(noise(args))

    def train_steps(count: int) -> None:
        for _ in range(count):
            done = training.step(*next(noisy))
        if count:
            done.numpy()  # waits for the device

    accuracy: dict[str, float] = {}
    if args.benchmark:
        training.set_rate(0)
        facts = {"framework": "tensorflow", "device": device, "devices": gang.size}
        facts |= {"batch_size": args.batch_size, "distribution": gang.name}
        rate = measure(args, train_steps, gang.sum, say, **facts)
    else:
        first = gang.rank == 0
        events = tf.summary.create_file_writer(args.tensorboard) if first else tf.summary.create_noop_writer()
        seconds = 0.0
        for epoch in range(start, args.epochs):
            data = noisy or iter(batches(source, args, gang.rank, gang.size, epoch))
            seconds += train_epoch(training, data, epoch, steps, say, events)
            if validation:
                top_1, top_5 = training.validate(batches(validation, args, gang.rank, gang.size, None))
                accuracy = {"top_1": top_1, "top_5": top_5}
                say(f"epoch {epoch + 1}/{args.epochs}  validation top-1 {top_1:.4f}  top-5 {top_5:.4f}")
                with events.as_default(epoch + 1):
                    for name, value in accuracy.items():
                        tf.summary.scalar(f"validation/{name}", value)
            training.save(epoch + 1)
        events.close()
        if first:
            training.model.save(Path(os.environ.get("RESULT_DIR", "."), "model.keras"))
        trained = (args.epochs - start) * steps * args.batch_size * gang.size
        rate = trained / seconds if seconds else 0.0

    if gang.rank == 0:
        summary(
            images=images,
            validation_images=len(validation) if validation else 0,
            synthetic=args.synthetic,
            seconds=time.monotonic() - STARTED,
            images_per_second=rate,
            batch_size=args.batch_size,
            devices=gang.size,
            device=device,
            distribution=gang.name,
            **accuracy,
        )
    gang.close()


if __name__ == "__main__":
    main()
