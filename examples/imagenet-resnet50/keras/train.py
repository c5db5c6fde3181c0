"""ResNet-50 on ImageNet with Keras 3: `model.fit`, alone or with Horovod.

Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR, and starts this program once a GPU (once a learner without) with
what the processes need to find each other.

Horovod's own Keras optimizer knows Keras 2 only. For Keras 3 it takes little: an optimizer that averages the gradients
before it applies them, and one broadcast at the start.
"""

import math
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import keras
import tensorflow as tf
from data import batches, find, noise
from gang import join
from model import resnet
from recipe import learning_rate, options
from report import conclude, summary

STARTED = time.monotonic()
CHECKPOINTS = Path(os.environ.get("CHECKPOINT_DIR", "."))


class _Averaging:
    """For an optimizer: averages the gradients over all processes. For the outermost one: a loss scale's has to look
    for infinite gradients in what all have, or one process would leave a step out and the others wait for it."""

    def average_with(self, gang, fp16: bool):
        self._average = lambda gradients: gang.average(gradients, fp16)
        return self

    def apply(self, grads, trainable_variables=None):
        return super().apply(self._average(grads), trainable_variables)


class AveragingSGD(_Averaging, keras.optimizers.SGD):
    pass


class AveragingLossScale(_Averaging, keras.optimizers.LossScaleOptimizer):
    pass


def compiled(args, gang) -> keras.Model:
    if args.amp:
        keras.mixed_precision.set_global_policy(f"mixed_{args.amp}")
    model = resnet(args.depth, args.classes, args.width, args.image_size, args.weight_decay)
    sgd = keras.optimizers.SGD if args.amp == "float16" else AveragingSGD
    optimizer = sgd(args.base_lr, args.momentum, nesterov=args.momentum > 0)
    if args.amp == "float16":
        optimizer = AveragingLossScale(optimizer)
    model.compile(
        optimizer.average_with(gang, args.fp16_allreduce),
        keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=args.label_smoothing),
        metrics=[
            keras.metrics.CategoricalAccuracy("top_1"),
            keras.metrics.TopKCategoricalAccuracy(min(5, args.classes), "top_5"),
        ],
        jit_compile=False,  # XLA knows nothing of Horovod's operations
        auto_scale_loss=False,  # done above, around the average
    )
    model.optimizer.build(model.trainable_variables)
    return model


class Epochs(keras.callbacks.Callback):
    """Around each epoch: the learning rate, lines for the log, validation, the checkpoint."""

    def __init__(self, args, gang, steps: int, validation, validation_images: int) -> None:
        super().__init__()
        self.args, self.gang, self.steps = args, gang, steps
        self.validation, self.validation_images = validation, validation_images
        self.seconds, self.accuracy = 0.0, {}

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self.epoch, self.begun = epoch, time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None) -> None:
        self.model.optimizer.learning_rate = learning_rate(self.args, self.gang.size, self.epoch + batch / self.steps)

    def on_train_batch_end(self, batch, logs=None) -> None:
        if (batch + 1) % self.args.log_every == 0:
            rate = (batch + 1) * self.args.batch_size * self.gang.size / (time.perf_counter() - self.begun)
            self._say(f"step {batch + 1}/{self.steps}  loss {float(logs['loss']):.4f}  {rate:.1f} images/sec")

    def on_epoch_end(self, epoch, logs=None) -> None:
        names = ("loss", "top_1", "top_5")
        averages = [total / self.gang.size for total in self.gang.sum([float(logs[name]) for name in names])]
        seconds = time.perf_counter() - self.begun
        self.seconds += seconds
        logs.update(zip(names, averages, strict=True))  # for the callbacks after this one: TensorBoard
        rate = learning_rate(self.args, self.gang.size, epoch + (self.steps - 1) / self.steps)
        per_second = self.steps * self.args.batch_size * self.gang.size / seconds
        self._say(
            f"loss {logs['loss']:.4f}  top-1 {logs['top_1']:.4f}  top-5 {logs['top_5']:.4f}  "
            f"learning rate {rate:g}  {per_second:.1f} images/sec"
        )
        if self.validation is not None:
            self._validate(logs)
        if self.gang.rank == 0:
            self._save(epoch + 1)

    def _validate(self, logs) -> None:
        self.gang.average_statistics(self.model)
        hits = [0.0, 0.0]
        if self.validation_images:
            steps = math.ceil(self.validation_images / self.args.batch_size)
            mine = self.model.evaluate(self.validation, steps=steps, verbose=0, return_dict=True)
            hits = [mine[name] * self.validation_images for name in ("top_1", "top_5")]
        first, five, images = self.gang.sum([*hits, self.validation_images])
        self.accuracy = {"top_1": first / images, "top_5": five / images}
        self._say(f"validation top-1 {first / images:.4f}  top-5 {five / images:.4f}")
        logs.update({f"val_{name}": value for name, value in self.accuracy.items()})

    def _save(self, epoch: int) -> None:
        """Weights and optimizer, at once or not at all: a learner may be stopped at any moment, also while it
        writes."""
        older = checkpoints()
        part = CHECKPOINTS / "part.weights.h5"
        self.model.save_weights(part)
        part.replace(CHECKPOINTS / f"epoch-{epoch:04}.weights.h5")
        for path in older:
            path.unlink()

    def _say(self, line: str) -> None:
        if self.gang.rank == 0:
            print(f"epoch {self.epoch + 1}/{self.args.epochs}  {line}", flush=True)


class Stopwatch(keras.callbacks.Callback):
    """Images/sec of each iteration of --benchmark, within one fit()."""

    def __init__(self, args) -> None:
        super().__init__()
        self.args, self.rates = args, []

    def on_train_begin(self, logs=None) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None) -> None:
        each = self.args.batches_per_iteration
        measured = batch + 1 - self.args.warmup_batches
        if measured >= 0 and measured % each == 0:
            float(logs["loss"])  # waits for the device
            now = time.perf_counter()
            if measured:
                self.rates.append(self.args.batch_size * each / (now - self.begun))
            self.begun = now


def training_batches(source, args, gang, epochs: range, steps: int) -> tf.data.Dataset:
    """The steps of all these epochs, one after the other."""
    numbers = tf.data.Dataset.range(epochs.start, epochs.stop)
    return numbers.flat_map(lambda epoch: batches(source, args, gang.rank, gang.size, epoch).take(steps))


def checkpoints() -> list[Path]:
    """The checkpoints of earlier attempts of this job, the newest last."""
    return sorted(CHECKPOINTS.glob("epoch-*.weights.h5"))


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

    def one_hot(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda pixels, label: (pixels, tf.one_hot(label, args.classes)))

    model = compiled(args, gang)
    start = 0
    if gang.rank == 0 and checkpoints() and not args.benchmark:
        newest = checkpoints()[-1]  # an earlier attempt of this job was interrupted: go on after its last epoch
        model.load_weights(newest)
        start = int(newest.name.split("-")[1].split(".")[0])
        say(f"resuming after epoch {start} from {newest.name}")
    gang.start_alike([*model.variables, *model.optimizer.variables])
    start = int(gang.sum([start])[0])  # the others' are 0
    print(f"rank {gang.rank} of {gang.size} on {device}", flush=True)
    data = one_hot(training_batches(source, args, gang, range(start, args.epochs), steps) if source else noise(args))

    accuracy: dict[str, float] = {}
    if args.benchmark:
        model.optimizer.learning_rate = learning_rate(args, gang.size, 0)
        watch = Stopwatch(args)
        total = args.warmup_batches + args.iterations * args.batches_per_iteration
        model.fit(data, steps_per_epoch=total, callbacks=[watch], shuffle=False, verbose=0)
        facts = {"framework": "keras", "device": device, "devices": gang.size}
        facts |= {"batch_size": args.batch_size, "distribution": gang.name}
        rate = conclude(watch.rates, gang.sum, say, **facts)
    else:
        held = batches(validation, args, gang.rank, gang.size, None) if validation else None
        mine = validation.share(gang.rank, gang.size) if validation else 0
        epochs = Epochs(args, gang, steps, one_hot(held) if validation else None, mine)
        callbacks = [epochs]
        if gang.rank == 0:
            callbacks.append(keras.callbacks.TensorBoard(args.tensorboard, write_graph=False))
        model.fit(
            data,
            epochs=args.epochs,
            initial_epoch=start,
            steps_per_epoch=steps,
            callbacks=callbacks,
            shuffle=False,  # done
            verbose=0,
        )
        accuracy = epochs.accuracy
        if gang.rank == 0:
            trained = resnet(
                args.depth, args.classes, args.width, args.image_size
            )  # without optimizer and regularizers
            trained.set_weights(model.get_weights())
            trained.save(Path(os.environ.get("RESULT_DIR", "."), "model.keras"))
        done = (args.epochs - start) * steps * args.batch_size * gang.size
        rate = done / epochs.seconds if epochs.seconds else 0.0

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
