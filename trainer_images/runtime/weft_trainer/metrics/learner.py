"""All metrics of one learner: its sources, and the way to the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template

from weft_trainer.config import Config
from weft_trainer.control import Control
from weft_trainer.folders import Folders
from weft_trainer.log.lines import Line
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.metrics.collector import Collector, Source
from weft_trainer.metrics.discovery import Discovery
from weft_trainer.metrics.emetrics import NAME, EmetricsFiles
from weft_trainer.metrics.logged import LoggedMetrics
from weft_trainer.metrics.logging import FILE_VARIABLE
from weft_trainer.metrics.regex import RegexExtractor
from weft_trainer.metrics.sampler import SystemSampler
from weft_trainer.metrics.shipper import MetricShipper
from weft_trainer.metrics.tensorboard import EventFiles, is_event_file
from weft_trainer.service.mask import Mask
from weft_trainer.service.reporter import Reporter
from weft_trainer.service.spool import METRIC_BATCH_BYTES, Spool
from weft_trainer.spec import LearnerSpec

SPOOL = "metrics"
"""Folder of the spool, in the agent's own."""
_FINISH_SECONDS = 20.0
_STOP_SECONDS = 2.0


class LearnerMetrics:
    """
    Args:
        say: writes a line into the job's log.
        stepped: called when the program has reported values.
    """

    def __init__(
        self,
        config: Config,
        spec: LearnerSpec,
        folders: Folders,
        reporter: Reporter,
        instance: str,
        control: Control,
        watchdog: Watchdog,
        say: Callable[[str], None],
        mask: Mask,
        stepped: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._control = control
        self._spec = spec
        self._folders = folders
        self._say = say
        spool = Spool(folders.agent / SPOOL, instance, METRIC_BATCH_BYTES)
        self._shipper = MetricShipper(reporter, control, spool, say, mask, stepped)
        self._sampler = SystemSampler(
            self._shipper, spec.system_metrics_seconds, watchdog.own, [config.workdir], spec.memory
        )
        self._extractor: RegexExtractor | None = None
        if spec.evaluation_metrics.type == "regex_extractor":
            wanted = spec.evaluation_metrics
            self._extractor = RegexExtractor(wanted.line_lookahead, wanted.groups, self._shipper, say, watchdog)
        self._collector: Collector | None = None
        self._discovery: Discovery | None = None

    def start(self) -> None:
        self._shipper.start()
        self._sampler.start()

    def begin(self, env: Mapping[str, str]) -> None:
        """The program starts, with this environment."""
        roots = [self._folders.log, self._folders.result, self._folders.model]
        named = self._named(env)
        type_ = self._spec.evaluation_metrics.type
        if named is not None:
            roots.append(named.parent if type_ == "emetrics_file" else named)
        # A folder that the manifest names is read as such, even if it is the job's.
        folder = None if type_ == "tensorboard" and named == self._folders.model else self._folders.model

        def wanted(name: str) -> bool:
            return is_event_file(name) or name == NAME or (named is not None and name == named.name)

        self._discovery = Discovery(roots, wanted, self._say)
        before = [file for file in self._discovery.find() if file.path.is_relative_to(self._folders.model)]
        sources: list[Source] = [
            LoggedMetrics(Path(env[FILE_VARIABLE]), self._shipper),
            EventFiles(self._shipper, self._say, folder, before),
        ]
        if type_ == "emetrics_file":
            # Before the event files, which yield to it.
            sources.insert(1, EmetricsFiles(self._shipper, self._say, named, folder))
        self._collector = Collector(sources, self._discovery.find, self._say)
        self._collector.start()
        if self._extractor is not None:
            try:
                self._extractor.start()
            except OSError as error:
                self._extractor = None
                self._say(f"weft: metrics: nothing is extracted from the log: {error}")

    @property
    def reads_log(self) -> bool:
        """Whether ``said`` must get every line."""
        return self._extractor is not None

    def said(self, lines: Sequence[Line]) -> None:
        """Take lines that the program has written into the log."""
        if self._extractor is not None:
            self._extractor.feed(lines)

    def finish(self) -> None:
        """The program has ended, and its log has been read."""
        # When a stop came, the grace is for the last checkpoint.
        seconds = 0.0 if self._control.fenced else _STOP_SECONDS if self._control.stop_requested else _FINISH_SECONDS
        if self._extractor is not None:
            self._extractor.finish(seconds)
        if self._collector is not None and self._discovery is not None:
            self._discovery.ends = True
            self._collector.finish(seconds)

    def flush(self, deadline: float) -> bool:
        """Send the rest. Returns whether it arrived within ``deadline`` seconds."""
        self._sampler.stop()
        return self._shipper.flush(deadline)

    def _named(self, env: Mapping[str, str]) -> Path | None:
        """The path in the manifest's ``in``; None: there is none, or this learner must not read it."""
        written = self._spec.evaluation_metrics.path
        if not written or self._spec.evaluation_metrics.type not in ("tensorboard", "emetrics_file"):
            return None
        try:
            path = Path(self._folders.model, Template(written).safe_substitute(env)).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            self._say(f"weft: metrics: evaluation_metrics.in is no path: {error}")
            return None
        own = self._config.workdir.resolve()
        shared = None if self._config.shared_dir is None else self._config.shared_dir.resolve()
        if path.is_relative_to(own):
            return self._config.workdir / path.relative_to(own)  # as the other folders are written
        if shared is not None and path.is_relative_to(shared):
            # All learners see it, so only the first reads it; but LOG_DIR is this learner's own.
            mine = path.is_relative_to(self._folders.log.resolve())
            return path if mine or self._spec.rank == 0 else None
        self._say(f"weft: metrics: evaluation_metrics.in is {path}, which is none of a learner's folders: not watched")
        return None
