"""Tell cats from dogs with Keras, a pretrained DenseNet-121 and tf.distribute.MirroredStrategy, in two phases: first a
new head on the frozen backbone, then the backbone's upper dense blocks too, slowly, until the held-out images say that
it is enough.

Weft gives DATA_DIR (TFRecords made by `weft data prepare`), PRETRAINED_DIR (a backbone.keras), CHECKPOINT_DIR, and
RESULT_DIR for the SavedModel and TensorBoard's files. On GPUs the replicas are on all that the learner has; without
one, the CPU is made to look like two devices.
"""

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import keras
import tensorflow as tf
from model import (
    BLOCK_ENDS,
    Progress,
    RandomNumbers,
    backbone,
    classifier,
    compile_for,
    copy_weights,
    devices,
    set_precision,
)
from records import class_names, read_shuffled, read_weighted, shards, steps_per_epoch

DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.weights.h5"
PRETRAINED = os.environ.get("PRETRAINED_DIR")


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--head-epochs", type=int, default=5, help="with the backbone frozen")
    add("--fine-tune-epochs", type=int, default=20, help="after them, at most")
    add("--head-learning-rate", type=float, default=1e-3)
    add("--fine-tune-learning-rate", type=float, default=1e-5)
    add("--patience", type=int, default=3, help="fine-tuning ends after so many epochs without a lower validation loss")
    add("--unfreeze", type=int, default=2, choices=range(5), help="dense blocks, from the top, that fine-tuning trains")
    add("--batch-size", type=int, default=16, help="of each replica")
    add("--image-size", type=int, default=224)
    add("--blocks", type=int, default=4, choices=range(1, 5), help="dense blocks of the backbone; 4 is DenseNet-121")
    add("--dropout", type=float, default=0.2, help="before the head")
    add("--mirror", action=argparse.BooleanOptionalAction, default=True, help="mirror half of the images at random")
    add(
        "--precision",
        default="auto",
        choices=["auto", "float32", "mixed_float16", "mixed_bfloat16"],
        help="auto is mixed_float16 on GPUs and float32 otherwise",
    )
    add("--cpu-devices", type=int, default=2, help="replicas when there is no GPU")
    add("--seed", type=int, default=1)
    return parser.parse_args(words)  # fmt: skip


def say(line: str) -> None:
    print(line, flush=True)


def find_backbone() -> Path:
    found = sorted(Path(PRETRAINED).rglob("backbone.keras")) if PRETRAINED else []
    if len(found) != 1:
        where = PRETRAINED or "the manifest has no pretrained_model"
        raise SystemExit(
            f"expected one backbone.keras in the pretrained model, found {len(found)} ({where}); README.md says how to "
            "make one, and a prefix in the manifest's pretrained_model chooses one of several"
        )
    return found[0]


@dataclass
class Phase:
    """A part of the training; ``end`` counts the epochs from the very beginning."""

    name: str
    end: int
    learning_rate: float
    unfrozen: int  # dense blocks of the backbone, from the top


def phases(args: argparse.Namespace) -> list[Phase]:
    return [
        Phase("head", args.head_epochs, args.head_learning_rate, 0),
        Phase("fine-tuning", args.head_epochs + args.fine_tune_epochs, args.fine_tune_learning_rate, args.unfreeze),
    ]


def unfreeze(features: keras.Model, blocks: int) -> None:
    """Train the backbone's last ``blocks`` dense blocks, each with the transition after it, and nothing before them.

    Batch normalisation stays as it is everywhere: a layer that is not trainable also keeps its statistics. (Calling the
    backbone with training=False would not do it: in Keras 3, fit()'s training=True reaches the layers of a model inside
    a model nevertheless.) What it would learn of few images destroys what the backbone has learned of many.
    """
    ends = [index for index, layer in enumerate(features.layers) if layer.name in BLOCK_ENDS]
    starts = [0, *(end + 1 for end in ends)]
    first = starts[max(0, len(ends) - blocks)] if blocks else len(features.layers)
    for index, layer in enumerate(features.layers):
        layer.trainable = index >= first and not isinstance(layer, keras.layers.BatchNormalization)


class EarlyStopping(keras.callbacks.EarlyStopping):
    """Keras's, but it continues from the state that an interrupted attempt has stored."""

    STORED = ("best", "wait", "best_epoch")

    def __init__(self, patience: int, stored: dict) -> None:
        super().__init__("val_cross_entropy", patience=patience, restore_best_weights=True)
        self.stored = stored

    def on_train_begin(self, logs=None) -> None:
        super().on_train_begin(logs)
        for name, value in self.stored.items():
            setattr(self, name, value)


class Checkpoint(keras.callbacks.Callback):
    """After each epoch, in one file: weights, the optimizer, the progress, and the state of early stopping."""

    def __init__(self, phase: int, stopping: EarlyStopping | None) -> None:
        super().__init__()
        self.phase, self.stopping = phase, stopping

    def on_epoch_end(self, epoch, logs=None) -> None:
        part = CHECKPOINT.with_name("part.weights.h5")
        self.model.save_weights(part)
        with h5py.File(part, "a") as file:
            progress = file.create_group("progress")
            progress.attrs.update(phase=self.phase, epochs=epoch + 1)
            if self.stopping is not None:
                progress.attrs.update({name: getattr(self.stopping, name) for name in EarlyStopping.STORED})
                for number, weights in enumerate(self.stopping.best_weights):
                    progress.create_dataset(f"best_weights/{number}", data=weights)
        part.replace(CHECKPOINT)  # at once or not at all: a learner may be stopped at any moment, also while it writes


def load_progress() -> tuple[int, int, dict]:
    """Phase, epochs and the state of early stopping when the checkpoint was written; zeros if there is none."""
    if not CHECKPOINT.exists():
        return 0, 0, {}
    with h5py.File(CHECKPOINT) as file:
        progress = file["progress"]
        stored = {name: progress.attrs[name].item() for name in EarlyStopping.STORED if name in progress.attrs}
        if "best_weights" in progress:
            best = progress["best_weights"]
            stored["best_weights"] = [best[str(number)][()] for number in range(len(best))]
        return int(progress.attrs["phase"]), int(progress.attrs["epochs"]), stored


def train(model: keras.Model, features: keras.Model, strategy, batch: int, held_out, args: argparse.Namespace) -> None:
    """Both phases, or the rest of them after an interrupted attempt."""
    steps = steps_per_epoch(DATA, "train", batch)
    reached, done, stored = load_progress()
    for number, phase in enumerate(phases(args)):
        if number < reached:
            continue
        with strategy.scope():
            unfreeze(features, phase.unfrozen)
            compile_for(model, keras.optimizers.Adam(phase.learning_rate))  # anew: what is trained has changed
            model.optimizer.build(model.trainable_variables)
            if done and number == reached:
                model.load_weights(CHECKPOINT)
                say(f"resuming after epoch {done} from {CHECKPOINT.name}")
        weights = sum(variable.shape.num_elements() for variable in model.trainable_variables)
        say(f"{phase.name}: training {weights:,} of {model.count_params():,} weights, to epoch {phase.end} at most")
        callbacks: list[keras.callbacks.Callback] = []
        stopping, end = None, phase.end
        if phase.name == "fine-tuning":
            stopping = EarlyStopping(args.patience, stored)
            callbacks.append(stopping)
            if stored.get("wait", 0) >= args.patience:
                end = done  # it had stopped already: only the best weights are taken
        callbacks += [
            RandomNumbers(args.seed),
            Checkpoint(number, stopping),
            keras.callbacks.TensorBoard(RESULTS / "tensorboard", write_graph=False),
            Progress(phase.name),
        ]
        history = model.fit(
            read_shuffled(DATA, "train", args.image_size, batch, range(done, phase.end), args.seed, args.mirror),
            steps_per_epoch=steps,
            validation_data=held_out,
            initial_epoch=done,
            epochs=end,
            callbacks=callbacks,
            shuffle=False,  # it is done already
            verbose=0,
        )
        done = max(done, end) if stopping is None else done + len(history.epoch)
        if stopping is not None and stopping.best is not None:
            say(f"{phase.name}: took epoch {stopping.best_epoch + 1}, validation loss {stopping.best:.4f}")


def store(model: keras.Model, classes: list[str], args: argparse.Namespace) -> None:
    """The model as a SavedModel, in float32 and without a strategy: pixel values in, probabilities out."""
    keras.mixed_precision.set_global_policy("float32")
    whole = classifier(backbone(args.blocks), args.image_size, len(classes), args.dropout)
    whole.set_weights(model.get_weights())
    keras.Sequential([whole, keras.layers.Softmax()]).export(RESULTS / "saved_model", verbose=False)
    (RESULTS / "classes.json").write_text(json.dumps(classes) + "\n")


def main() -> None:
    args = arguments()
    stored = find_backbone()
    keras.utils.set_random_seed(args.seed)
    names = devices(args.cpu_devices)
    strategy = tf.distribute.MirroredStrategy(names)
    say(f"{strategy.num_replicas_in_sync} replicas on {', '.join(names)}, {set_precision(args.precision)}")

    classes = class_names(DATA)
    batch = args.batch_size * strategy.num_replicas_in_sync  # fit() deals each batch out to the replicas
    held_out = read_weighted(DATA, "validation", args.image_size, batch)
    with strategy.scope():  # every variable made in here has a copy on each device, kept equal
        features = backbone(args.blocks)
        copy_weights(stored, features)
        model = classifier(features, args.image_size, len(classes), args.dropout)
    train(model, features, strategy, batch, held_out, args)

    accuracy = model.evaluate(held_out, verbose=0, return_dict=True)["accuracy"]
    say(f"validation accuracy {accuracy:.4f} on {shards(DATA, 'validation')[1]:,} held-out images")
    store(model, classes, args)
    say("saved saved_model/ and tensorboard/")


if __name__ == "__main__":
    main()
