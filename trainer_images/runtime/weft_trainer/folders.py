"""The learner's folders, in FfDL's sense of their names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from weft_trainer.config import Config
from weft_trainer.spec import LearnerSpec


class Folders(NamedTuple):
    model: Path
    """MODEL_DIR: the code, and the working directory."""
    data: Path
    result_bucket: Path
    result: Path
    """RESULT_DIR: its content goes to S3 at the end."""
    checkpoint: Path
    job_state: Path
    log: Path
    pretrained: Path
    agent: Path
    """The agent's own: log spool, the merged log."""

    @property
    def streams(self) -> Path:
        """WEFT_STREAM_DIR: the lists of objects in data stores in mode stream."""
        return self.agent.with_name("streams")

    @property
    def identity(self) -> Path:
        """WEFT_ID_TOKEN_FILE: the identity token."""
        return self.agent.with_name("identity") / "token"

    @property
    def parameters(self) -> Path:
        """WEFT_PARAMETERS_FILE: the manifest's parameters, as a JSON object."""
        return self.agent.with_name("parameters.json")

    @property
    def venv(self) -> Path:
        """The job's own virtual environment."""
        return self.agent.with_name("venv")

    @property
    def metrics(self) -> Path:
        """The file to which ``log_metrics`` writes."""
        return self.agent.with_name("metrics")

    @property
    def collectives(self) -> Path:
        """WEFT_COLLECTIVES_DIR: where the program's processes show their flight recorders to the agent."""
        return self.agent.with_name("collectives")

    @property
    def profiles(self) -> Path:
        """WEFT_PROFILES_DIR: where the program's processes take the agent's requests for profiles."""
        return self.agent.with_name("profiles")

    @classmethod
    def create(cls, config: Config, spec: LearnerSpec) -> Folders:
        work = config.workdir
        job_state = config.shared_dir or work / "job"
        logs = job_state / "logs"
        if config.shared_dir is not None and spec.learners > 1:
            logs = logs / f"learner-{spec.learner_id}"  # each learner tails its own only
        folders = cls(
            model=work / "model",
            data=work / "data",
            result_bucket=work / "results",
            result=work / "results" / spec.job_id,
            checkpoint=work / "results" / "_checkpoints",
            job_state=job_state,
            log=logs,
            pretrained=work / "pretrained",
            agent=agent_folder(work),
        )
        for folder in (
            folders.model,
            folders.data,
            folders.result,
            folders.checkpoint,
            folders.log,
            folders.pretrained,
            folders.agent,
            folders.metrics,
            folders.collectives,
            folders.profiles,
        ):
            folder.mkdir(parents=True, exist_ok=True)
        return folders

    @property
    def submitted(self) -> Path:
        """Learner 1's: the code's zip, until it goes to the results."""
        return self.agent / "model.zip"

    def put_code(self) -> None:
        """The place at which FfDL's users expect the code of a result."""
        if self.submitted.exists():
            place = self.result / "_submitted_code" / "model.zip"
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.submitted, place)

    def put_log(self, merged: Path, learner_id: int) -> None:
        """The place at which FfDL's users expect the log of a learner: ``$RESULT_DIR/learner-<n>/training-log.txt``."""
        place = self.result / f"learner-{learner_id}" / "training-log.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        shutil.move(merged, place)  # not a copy: it may be large


def agent_folder(workdir: Path) -> Path:
    return workdir / "agent"
