"""Preparing a data set: parallel processes make units; each finished unit is published and then marked done.

This order makes it safe to kill the run at any moment: a unit is written in the state folder, moved (or uploaded) to
its final name, and only then marked done. A unit without a mark is made again, under the same name and with the same
bytes. ``dataset.json`` is published last.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft_data.errors import DatasetError
from weft_data.options import Layout, Options
from weft_data.source import Source
from weft_data.targets import DATASET, REPORT, Target, alone, remove, write_json
from weft_data.units import Outcome, Recipe, Unit, Written, make, units

_POLL = 0.2  # seconds between two counts of the finished images
_UPLOADS = 4


@dataclass(frozen=True)
class Progress:
    """How far the run is; the numbers include the images and units of earlier runs."""

    images: int
    units: int
    all_units: int
    corrupt: int


@dataclass(frozen=True)
class Summary:
    """The finished data set.

    Attributes:
        records: images by split.
        earlier: units that earlier runs made.
        corrupt: the images that were left out, as in ``report.json``.
        recoded: number of images that were not plain JPEGs and were converted.
    """

    records: Mapping[str, int]
    bytes: int
    files: int
    earlier: int
    corrupt: Sequence[Mapping[str, str]]
    recoded: int


def prepare(
    source: Source,
    target: Target,
    options: Options | None = None,
    *,
    processes: int | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Write ``source`` to ``target``, or continue where an earlier run with the same source and options ended.

    Args:
        processes: default: one per core that this process may use.

    Raises:
        DatasetError: the target has other content, the source can't be read, or all images of a split are corrupt.
        Exception: whatever the target raises, for example because a data store can't be reached.
    """
    options = options or Options()
    fingerprint = source.fingerprint(options.to_json())
    try:
        there = target.files()
        if DATASET in there:
            return _complete(target, fingerprint)
        with alone(target.state):
            return _Run(source, target, options, fingerprint, there).go(processes or _cores(), progress)
    except OSError as error:  # no space, no permission
        raise DatasetError(f"{error.filename or target}: {error.strerror or error}") from error


class _Run:
    def __init__(
        self, source: Source, target: Target, options: Options, fingerprint: str, there: Mapping[str, int]
    ) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._fingerprint = fingerprint
        self._begin(there)
        self._units = units(source, options.records, options.seed)
        self._done = self._earlier(there)
        self._earlier_units = len(self._done)
        self._images = sum(len(unit.items) for unit in self._units if unit.stem in self._done)

    @property
    def _work(self) -> Path:
        return self._target.state / "work"

    @property
    def _marks(self) -> Path:
        return self._target.state / "done"

    def _begin(self, there: Mapping[str, int]) -> None:
        """Compare with the plan of an earlier run, or write the plan."""
        path = self._target.state / "plan.json"
        plan = {"fingerprint": self._fingerprint, "options": self._options.to_json(), "kind": self._source.kind}
        if path.exists():
            begun = json.loads(path.read_bytes())
            if begun["fingerprint"] != self._fingerprint:
                raise DatasetError(
                    f"{self._target} was begun {_difference(begun, plan)}; finish that, or choose another target"
                )
        elif there:
            raise DatasetError(
                f"{self._target} holds {len(there):,} other file{'s' * (len(there) != 1)} already "
                f"({min(there)} …); choose an empty place for the data set"
            )
        else:
            write_json(path, plan)
        remove(self._work)
        self._work.mkdir()
        self._marks.mkdir(exist_ok=True)

    def _earlier(self, there: Mapping[str, int]) -> dict[str, Outcome]:
        """The units that are marked done and whose files are complete."""
        done = {}
        for unit in self._units:
            mark = self._marks / f"{unit.stem}.json"
            if mark.exists():
                outcome = Outcome.from_json(json.loads(mark.read_bytes()))
                if all(there.get(file.name) == file.bytes for file in outcome.files):
                    done[unit.stem] = outcome
                else:
                    mark.unlink()
        return done

    def go(self, processes: int, progress: Callable[[Progress], None]) -> Summary:
        todo = [unit for unit in self._units if unit.stem not in self._done]
        if todo:
            self._make(todo, min(processes, len(todo)), progress)
        return self._finish()

    def _make(self, todo: Sequence[Unit], processes: int, progress: Callable[[Progress], None]) -> None:
        recipe = Recipe(self._options.layout, self._options.images, self._source.classes, self._source.encoding)
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that our threads hold
        counter = context.Value("q", 0)
        pool = ProcessPoolExecutor(processes, context, _begin_worker, (counter,))
        uploads = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="weft-publish")
        waiting = iter(todo)
        making: dict[Future[Outcome], Unit] = {}
        publishing: set[Future[Outcome]] = set()

        def tell() -> None:
            corrupt = sum(len(outcome.corrupt) for outcome in self._done.values())
            progress(Progress(self._images + counter.value, len(self._done), len(self._units), corrupt))

        try:
            while True:
                # Bounded, so that units that wait for their upload don't fill the disk.
                while len(making) < 2 * processes and len(publishing) < 2 * _UPLOADS and (unit := next(waiting, None)):
                    making[pool.submit(_make_in_worker, unit, recipe, self._work)] = unit
                if not making and not publishing:
                    break
                finished, _ = wait([*making, *publishing], timeout=_POLL, return_when=FIRST_COMPLETED)
                for future in finished:
                    if future in publishing:
                        publishing.discard(future)
                        outcome = future.result()
                        self._done[outcome.stem] = outcome
                    else:
                        del making[future]
                        publishing.add(uploads.submit(self._publish, future.result()))
                tell()
        except BrokenProcessPool:
            raise DatasetError(
                "a process that decodes images was killed, perhaps because memory ran out; "
                "run the same command again to continue, with fewer --processes"
            ) from None
        finally:
            uploads.shutdown(wait=True, cancel_futures=True)
            _end(pool)

    def _publish(self, outcome: Outcome) -> Outcome:
        folder = self._work / outcome.stem
        self._target.publish(folder, outcome.files)
        write_json(self._marks / f"{outcome.stem}.json", outcome.to_json())
        remove(folder)
        return outcome

    def _finish(self) -> Summary:
        outcomes = [self._done[unit.stem] for unit in self._units]
        corrupt = [asdict(noted) for outcome in outcomes for noted in outcome.corrupt]
        recoded = [asdict(noted) for outcome in outcomes for noted in outcome.recoded]
        splits = {split: self._split(split, outcomes) for split in self._source.splits}
        if empty := [split for split, about in splits.items() if not about["records"]]:
            raise DatasetError(f"none of the images of {', '.join(empty)} can be decoded: {_first(corrupt, empty)}")
        self._refuse_others({file.name for outcome in outcomes for file in outcome.files})
        about = {
            "format": "weft-dataset",
            "version": 1,
            "layout": self._options.layout.value,
            "classes": list(self._source.classes),
            "splits": splits,
            "resize": self._options.images.resize,
            "resize_mode": self._options.images.resize_mode.value,
            "seed": self._options.seed,
            "corrupt": len(corrupt),
            "recoded": len(recoded),
            "source": {"kind": self._source.kind},
            "fingerprint": self._fingerprint,
        }
        if self._source.titles:
            about["class_titles"] = dict(self._source.titles)
        for name, value in ((REPORT, {"corrupt": corrupt, "recoded": recoded}), (DATASET, about)):
            size = write_json(self._work / name, value)
            self._target.publish(self._work, [Written(name, size, 0)])
        remove(self._target.state)
        return _summary(about, corrupt, self._earlier_units)

    def _split(self, split: str, outcomes: Iterable[Outcome]) -> dict[str, Any]:
        counts: Counter[int] = Counter()
        files: list[Written] = []
        for outcome in outcomes:
            if outcome.split == split:
                counts.update(outcome.class_counts)
                files += outcome.files
        about: dict[str, Any] = {
            "records": counts.total(),
            "bytes": sum(file.bytes for file in files),
            "class_counts": [counts[label] for label in range(len(self._source.classes))],
        }
        if self._options.layout is not Layout.IMAGEFOLDER:
            about["files"] = [asdict(file) for file in files]
        return about

    def _refuse_others(self, ours: set[str]) -> None:
        """Fail if other files are there: a shard of an earlier version of the source would double its images."""
        others = set(self._target.files()) - ours - {REPORT}
        if others:
            raise DatasetError(
                f"{self._target} holds {len(others):,} file{'s' * (len(others) != 1)} that "
                f"{'are' if len(others) != 1 else 'is'} not part of this data set, such as {min(others)}: remove "
                f"{'them' if len(others) != 1 else 'it'} and run the same command again"
            )


def _complete(target: Target, fingerprint: str) -> Summary:
    try:
        about = json.loads(target.read(DATASET))
        same = about["fingerprint"] == fingerprint
        corrupt = json.loads(target.read(REPORT))["corrupt"] if same else []
    except (ValueError, KeyError, TypeError, FileNotFoundError):
        same = False
    if not same:
        raise DatasetError(f"{target} already holds another data set, or one with other options; choose another target")
    remove(target.state)
    files = [len(split.get("files", ())) for split in about["splits"].values()]
    return _summary(about, corrupt, sum(files))


def _summary(about: Mapping[str, Any], corrupt: Sequence[Mapping[str, str]], earlier: int) -> Summary:
    splits = about["splits"]
    return Summary(
        {split: values["records"] for split, values in splits.items()},
        sum(values["bytes"] for values in splits.values()),
        sum(len(values["files"]) if "files" in values else values["records"] for values in splits.values()),
        earlier,
        corrupt,
        about["recoded"],
    )


def _difference(begun: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """A description of what has changed since the target was begun."""
    before, after = ({"source": plan["kind"], **plan["options"]} for plan in (begun, now))
    differing = [key for key in after if before.get(key) != after[key]]
    if not differing:
        return "from another source, or the source has changed since"
    return "with " + ", ".join(f"{key} {before.get(key)} (now {after[key]})" for key in differing)


def _first(corrupt: Sequence[Mapping[str, str]], splits: Sequence[str]) -> str:
    return next(
        (f"{image['source']}: {image['reason']}" for image in corrupt if image["split"] in splits), "there are none"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- in the worker processes ---------------------------------------------------------------------------------------

_counter: Any = None


def _begin_worker(counter: Any) -> None:
    global _counter
    _counter = counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    # A worker that waits for a unit would never notice that its parent is gone.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _tick() -> None:
    with _counter.get_lock():
        _counter.value += 1


def _make_in_worker(unit: Unit, recipe: Recipe, work: Path) -> Outcome:
    return make(unit, recipe, work / unit.stem, _tick)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the pool at once, whatever its processes are doing; the next run makes their units again."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()
