"""Train a DenseNet-121 from nothing on some data set of images, and store its backbone for train.py.

For machines that can't get ImageNet's weights; see README.md. Weft gives DATA_DIR, RESULT_DIR and CHECKPOINT_DIR.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from model import Progress, backbone, classifier, compile_for, devices, set_precision
from records import class_names, read_shuffled, read_weighted, steps_per_epoch

DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.weights.h5"


def save_checkpoint(model: keras.Model) -> None:
    """Weights and optimizer, at once or not at all: a learner may be stopped at any moment, also while it writes."""
    part = CHECKPOINT.with_name("part.weights.h5")
    model.save_weights(part)
    part.replace(CHECKPOINT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16, help="of each replica")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--blocks", type=int, default=4, choices=range(1, 5), help="dense blocks; 4 is DenseNet-121")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "mixed_float16", "mixed_bfloat16"])
    parser.add_argument("--cpu-devices", type=int, default=2, help="replicas when there is no GPU")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    keras.utils.set_random_seed(args.seed)
    strategy = tf.distribute.MirroredStrategy(devices(args.cpu_devices))
    precision, classes = set_precision(args.precision), class_names(DATA)
    batch = args.batch_size * strategy.num_replicas_in_sync
    print(f"{', '.join(classes)}: {strategy.num_replicas_in_sync} replicas, {precision}", flush=True)
    steps = steps_per_epoch(DATA, "train", batch)
    with strategy.scope():
        features = backbone(args.blocks)
        for layer in features.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.momentum = 0.9  # Keras's 0.99 is still far from the truth after the few steps of a short training
        model = classifier(features, args.image_size, len(classes), dropout=0.0)
        rate = keras.optimizers.schedules.CosineDecay(args.learning_rate, args.epochs * steps)
        compile_for(model, keras.optimizers.Adam(rate))
        model.optimizer.build(model.trainable_variables)
        if CHECKPOINT.exists():  # an earlier attempt of this job was interrupted: go on after its last epoch
            model.load_weights(CHECKPOINT)
    start = int(keras.ops.convert_to_numpy(model.optimizer.iterations)) // steps
    if start:
        print(f"resuming after epoch {start} from {CHECKPOINT.name}", flush=True)
    epochs = range(start, args.epochs)
    held_out = read_weighted(DATA, "validation", args.image_size, batch)
    model.fit(
        read_shuffled(DATA, "train", args.image_size, batch, epochs, args.seed, mirror=True),
        steps_per_epoch=steps,
        validation_data=held_out,
        initial_epoch=start,
        epochs=args.epochs,
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: save_checkpoint(model)),
            keras.callbacks.TensorBoard(RESULTS / "tensorboard", write_graph=False),
            Progress("pretraining"),
        ],
        shuffle=False,  # it is done already
        verbose=0,
    )

    keras.mixed_precision.set_global_policy("float32")
    stored = backbone(args.blocks)  # on one device
    stored.set_weights(features.get_weights())
    stored.save(RESULTS / "backbone.keras")
    print(f"saved backbone.keras: {args.blocks} dense blocks, {stored.count_params():,} weights", flush=True)


if __name__ == "__main__":
    main()
