"""cats-dogs-densenet with one flag after the other, and the effects of each, as JSON.

Started by test_cats_dogs_flags.py in the example's environment, on one device, with a DenseNet whose four dense blocks
have one layer each, and without graphs, which would take longer to make than to use. The calls of Keras's fit() are
recorded.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import tensorflow as tf
import train
from keras.src.applications.densenet import DenseNet
from model import backbone, devices

WORK = Path(sys.argv[1])
BASE = {
    "head-epochs": 1,
    "fine-tune-epochs": 1,
    "head-learning-rate": 0.01,
    "fine-tune-learning-rate": 0.001,
    "unfreeze": 1,
    "blocks": 2,
    "image-size": 32,
    "batch-size": 8,
    "cpu-devices": 1,
}


class Interrupted(Exception):
    pass


def run(folder: str, stop_after: int | None = None, **flags) -> dict:
    """One call of main(), in folders of its own unless an earlier run's name is given again."""
    train.RESULTS, train.CHECKPOINT = WORK / folder / "results", WORK / folder / "checkpoint" / "one.weights.h5"
    for made in (train.RESULTS, train.CHECKPOINT.parent):
        made.mkdir(parents=True, exist_ok=True)
    fits, said, failure, seen_fit, seen_store = [], io.StringIO(), None, keras.Model.fit, train.store

    def fit(model, training, **options):
        images, labels = next(iter(training))
        features = model.get_layer("densenet121")
        if stop_after is not None:

            def stop(epoch, logs=None) -> None:
                if epoch + 1 == stop_after:
                    raise Interrupted

            options["callbacks"] = [*options["callbacks"], keras.callbacks.LambdaCallback(on_epoch_end=stop)]
        before = {layer.name: layer.get_weights() for layer in features.layers}
        head = model.get_layer("head").get_weights()
        history = seen_fit(model, training, **options)
        changed = [
            layer.name
            for layer in features.layers
            if any((old != new).any() for old, new in zip(before[layer.name], layer.get_weights(), strict=True))
        ]
        counted = [
            layer.name
            for layer in features.layers
            if isinstance(layer, keras.layers.BatchNormalization)
            and (before[layer.name][2] != layer.get_weights()[2]).any()  # the moving mean
        ]
        fits.append(
            {
                "counted": counted,
                "rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
                "optimizer": type(model.optimizer).__name__,
                "epochs": [epoch + 1 for epoch in history.epoch],
                "changed": changed,
                "head_changed": any(
                    (a != b).any() for a, b in zip(head, model.get_layer("head").get_weights(), strict=True)
                ),
                "images": list(images.shape),
                "first": [float(tf.reduce_sum(image)) for image in images],
                "left": [float(tf.reduce_sum(image[:, :16])) for image in images],
                "labels": [int(label) for label in labels],
                "weights": model.count_params(),
                "dropout": [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)],
                "compute": features.get_layer("conv1_conv").compute_dtype,
                "variables": features.get_layer("conv1_conv").kernel.dtype,
                "head": model.get_layer("head").compute_dtype,
            }
        )
        return history

    keras.Model.fit = fit
    train.store = lambda *_: None  # makes a graph
    words = [f"--{name.replace('_', '-')}" for name, value in flags.items() if value is True]
    valued = BASE | {name.replace("_", "-"): value for name, value in flags.items() if value is not True}
    sys.argv = ["train.py", *words, *(word for name, value in valued.items() for word in (f"--{name}", str(value)))]
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(Interrupted):
            train.main()
    except SystemExit as exit_:
        failure = str(exit_)
    finally:
        keras.Model.fit, train.store = seen_fit, seen_store
        keras.mixed_precision.set_global_policy("float32")
    return {"fits": fits, "lines": said.getvalue().splitlines(), "failure": failure}


def main() -> None:
    devices(1)
    tf.distribute.MirroredStrategy = lambda _: tf.distribute.get_strategy()  # no graphs: very slow with the real one
    tf.config.run_functions_eagerly(True)
    tf.data.experimental.enable_debug_mode()
    keras.applications.DenseNet121 = lambda **options: DenseNet([1, 1, 1, 1], **options)
    pretrained = WORK / "pretrained"
    pretrained.mkdir()
    backbone(2).save(pretrained / "backbone.keras")
    train.PRETRAINED = str(pretrained)
    still = {"fine_tune_learning_rate": 0.0, "fine_tune_epochs": 6, "patience": 2, "head_epochs": 1}
    cases = {
        "base": run("base"),
        "others": run(
            "others",
            head_epochs=2,
            fine_tune_epochs=3,
            patience=9,
            head_learning_rate=0.02,
            fine_tune_learning_rate=0.003,
            image_size=40,
            batch_size=4,
            dropout=0.7,
        ),
        "patience": run("patience", **still),
        "more_patience": run("more_patience", **(still | {"patience": 4})),
        "unfreeze_nothing": run("unfreeze_nothing", unfreeze=0),
        "unfreeze_all": run("unfreeze_all", unfreeze=2),
        "fewer_blocks": run("fewer_blocks", blocks=1),
        "no_mirror": run("no_mirror", no_mirror=True),
        "seed": run("seed", seed=2, no_mirror=True),
        "mixed": run("mixed", precision="mixed_float16"),
        "too_many_blocks": run("too_many_blocks", blocks=3),
        "interrupted": run("interrupted", stop_after=3, **still),
        "resumed": run("interrupted", **still),
        "ended": run("interrupted", **still),
    }
    train.PRETRAINED = None
    cases["no_backbone"] = run("no_backbone")
    (WORK / "found.json").write_text(json.dumps(cases))


if __name__ == "__main__":
    main()
