"""The recipe, the same in all three frameworks: its options, and the learning rate.

Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017): the learning rate is in proportion to
the images that go into one step, is reached slowly, and falls to a tenth after 30, 60 and 80 of 90 epochs.
"""

import argparse
import os

IMAGENET = 1_281_167  # images to train on


def options(description: str) -> argparse.Namespace:
    """The command line. Raises SystemExit for options that make no sense."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument

    add("--data-dir", default=os.environ.get("DATA_DIR", "data"), help="a data set as `weft data prepare` writes it")
    add("--synthetic", action="store_true", help="no data: one batch of noise, again and again")
    add("--data-length", type=int, default=IMAGENET, metavar="IMAGES", help="of an epoch with --synthetic")
    add("--workers", type=int, default=4, help="of each process, to read and decode images")

    add("--depth", type=int, default=50, choices=(18, 34, 50, 101, 152), help="layers")
    add("--width", type=int, default=64, help="channels of the first layer; the others go with it")
    add("--classes", type=int, help="default: as many as the data has, 1000 with --synthetic")
    add("--image-size", type=int, default=224, metavar="PIXELS")

    add("--epochs", type=int, default=90)
    add("--batch-size", type=int, default=64, help="of each process")
    add("--base-lr", type=float, default=0.1, help="learning rate for 256 images a step")
    add("--warmup-epochs", type=float, default=5, help="until the learning rate is that of all processes")
    add("--decay-epochs", type=float, nargs="*", default=[30, 60, 80], metavar="EPOCH", help="when it falls")
    add("--decay-factor", type=float, default=0.1)
    add("--momentum", type=float, default=0.9)
    add("--weight-decay", type=float, default=1e-4, help="of the weights, not of biases and normalization")
    add("--label-smoothing", type=float, default=0.1)
    add("--seed", type=int, default=1)

    add("--amp", nargs="?", const="float16", choices=("float16", "bfloat16"), help="mixed precision; alone: float16")
    add("--fp16-allreduce", action="store_true", help="average the gradients in 16 bits: half the traffic")

    add("--log-every", type=int, default=50, metavar="STEPS")
    add("--tensorboard", default=_under("RESULT_DIR", "tensorboard"), metavar="DIR", help="where events go")

    add("--benchmark", action="store_true", help="no epochs: measure images/sec on --synthetic data")
    add("--warmup-batches", type=int, default=10, help="of --benchmark: before anything is measured")
    add("--iterations", type=int, default=10, help="of --benchmark: measurements")
    add("--batches-per-iteration", type=int, default=10, help="of --benchmark: batches of one measurement")

    args = parser.parse_args()
    args.synthetic |= args.benchmark
    positive = ("data_length", "width", "image_size", "epochs", "batch_size", "log_every", "iterations")
    for name in (*positive, "batches_per_iteration"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}")
    if args.image_size < 32:
        parser.error(f"--image-size {args.image_size}: the network halves an image five times, so 32 is the least")
    return args


def learning_rate(args: argparse.Namespace, processes: int, epochs: float) -> float:
    """The learning rate after so many ``epochs`` (with a fraction): from one process's, in a straight line, to that of
    all ``processes``, then down at each of ``--decay-epochs``."""
    base = args.base_lr * args.batch_size / 256
    peak = base * processes
    if epochs < args.warmup_epochs:
        return base + (peak - base) * epochs / args.warmup_epochs
    return peak * args.decay_factor ** sum(epochs >= epoch for epoch in args.decay_epochs)


def _under(variable: str, name: str) -> str:
    return os.path.join(os.environ.get(variable, "."), name)
