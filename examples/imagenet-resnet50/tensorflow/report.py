"""The output at the end of a run, the same in all three frameworks: the summary, and a benchmark's results."""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def summary(
    *,
    images: int,
    validation_images: int,
    synthetic: bool,
    seconds: float,
    images_per_second: float,
    batch_size: int,
    devices: int,
    device: str,
    distribution: str,
    **more: float,
) -> None:
    """Print the run's numbers, and keep them as RESULT_DIR/summary.json.

    Args:
        images, validation_images: of one epoch.
        seconds: from the program's start to its end.
        images_per_second: trained on, by all devices, while they trained.
        batch_size: of one device.
        devices: one a process.
        device: ``cuda`` or ``cpu``.
        distribution: ``horovod``, ``torch.distributed`` or ``none``.
        more: other values of the summary, ``top_1=…``.
    """
    length = f"{images:,} images" + (" (synthetic)" if synthetic else "")
    if validation_images:
        length += f", {validation_images:,} to validate on"
    rows = {
        "data length": length,
        "total duration": f"{seconds:.1f} s",
        "images/sec": f"{images_per_second:.1f} in all, {images_per_second / devices:.1f} per device",
        "batch size": f"{batch_size} per device, {batch_size * devices} in all",
        "devices": f"{devices} ({device})",
        "distributed": f"yes, {distribution}" if devices > 1 else "no",
        **{name.replace("_", "-"): f"{value:.4f}" for name, value in more.items()},
    }
    print("summary", flush=True)
    for name, value in rows.items():
        print(f"  {name:<16}{value}", flush=True)
    numbers = {
        "data_length": images,
        "validation_length": validation_images,
        "synthetic": synthetic,
        "seconds": seconds,
        "images_per_second": images_per_second,
        "images_per_second_per_device": images_per_second / devices,
        "batch_size": batch_size,
        "total_batch_size": batch_size * devices,
        "devices": devices,
        "device": device,
        "distributed": devices > 1,
        "distribution": distribution,
        **more,
    }
    place = Path(os.environ.get("RESULT_DIR", ".")) / "summary.json"
    place.write_text(json.dumps(numbers, indent=2) + "\n")


def measure(
    args,
    train: Callable[[int], None],
    total: Callable[[Sequence[float]], Sequence[float]],
    say: Callable[[str], None],
    **facts: object,
) -> float:
    """Images/sec of all devices: a warm-up, then the mean of ``--iterations`` measurements.

    Args:
        train: does so many steps and returns when the device has done them.
        total, say, facts: see :func:`conclude`.
    """
    train(args.warmup_batches)
    rates = []
    for iteration in range(args.iterations):
        begun = time.perf_counter()
        train(args.batches_per_iteration)
        rates.append(args.batch_size * args.batches_per_iteration / (time.perf_counter() - begun))
        say(f"iteration {iteration + 1}/{args.iterations}  {rates[-1]:.1f} images/sec on this device")
    return conclude(rates, total, say, **facts)


def conclude(
    rates: Sequence[float],
    total: Callable[[Sequence[float]], Sequence[float]],
    say: Callable[[str], None],
    **facts: object,
) -> float:
    """The mean images/sec of all devices, said and returned.

    The last line is JSON after the word `benchmark`, which `weft bench` reads: ``plus_minus`` is 1.96 standard
    deviations of a measurement, as in Horovod's synthetic benchmark.

    Args:
        rates: this device's images/sec, one a measurement.
        total: sums of numbers over all processes.
        facts: what else the line is to say.
    """
    rates = list(total(rates))
    mean, plus_minus = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    say(f"{mean:.1f} ± {plus_minus:.1f} images/sec in all")
    say("benchmark " + json.dumps({"images_per_second": mean, "plus_minus": plus_minus, "rates": rates, **facts}))
    return mean
