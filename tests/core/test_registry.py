"""The registry on a real Postgres: versions, references, stages, and deletions."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from tests.core.test_store import new_attempt, tenant

from weft_core.catalogue import Catalogue
from weft_core.ids import new_id
from weft_core.lifecycle.states import JobState
from weft_core.secrets import SecretBox, generate_key
from weft_core.store import jobs, registry
from weft_core.store.database import Database
from weft_core.store.models import Event, Job, JobMetric, Model, ModelVersion, Secret
from weft_core.store.registry import InUse, UnknownModel
from weft_core.store.scope import Scope
from weft_trainer.stores import summary as of_learner
from weft_trainer.stores.store import Stored

FILES = {"files": 2, "bytes": 10, "sha256": "0" * 64}


def finished(scope: Scope, *stores: dict[str, Any], pretrained_id: str | None = None) -> Job:
    """A job with these data stores that has COMPLETED in its first attempt."""
    manifest = {
        "data_stores": list(stores),
        "framework": {"image": "pytorch:2.13.0", "command": "x"},
        "env": {"A": "1"},
    }
    user = scope.project_id.replace("proj", "user")
    job = Job(
        user_id=user, name="j", manifest=manifest, engine="local", priority=50, learners=1, retries=0,
        pretrained_id=pretrained_id,
    )  # fmt: skip
    jobs.submit(scope, job, [])
    attempt = new_attempt(scope, job, 1)
    job.attempt, attempt.outputs, attempt.inputs = 1, FILES, {"data": FILES}
    attempt.exit_code = 0
    for state in (JobState.PENDING, JobState.PROCESSING, JobState.COMPLETED):
        jobs.transition(scope.session, job, state, state.lower())
    scope.session.flush()
    return job


def registers(name: str, **more: Any) -> dict[str, Any]:
    return {"id": "s3", "training_results": {"prefix": "", "model": name}, **more}


def test_a_completed_job_becomes_the_next_version_in_the_same_transaction(database: Database) -> None:
    with database.transaction() as session:
        tenant(session, "ours")

    def lost() -> None:
        with database.transaction() as session:
            finished(Scope(session, "proj-ours"), registers("digits"))
            raise RuntimeError  # the transaction is rolled back, and the job's completion with it

    with pytest.raises(RuntimeError):
        lost()
    with database.transaction() as session:
        scope = Scope(session, "proj-ours")
        assert scope.all(scope.select(ModelVersion)) == []
        first, second = finished(scope, registers("digits")), finished(scope, registers("digits"))
        finished(scope, {"id": "s3", "training_results": {"container": "c", "prefix": ""}})
        model = registry.find_model(scope, "digits")
        versions = scope.all(scope.select(ModelVersion).order_by(ModelVersion.number))
        assert [(row.number, row.job_id, row.files) for row in versions] == [
            (1, first.id, FILES),
            (2, second.id, FILES),
        ]
        assert versions[0].prefix == f"jobs/proj-ours/{first.id}/results"
        events = session.scalars(select(Event).where(Event.job_id == second.id).order_by(Event.id)).all()
        assert [(event.kind, event.message) for event in events[-2:]] == [
            ("model", "registered as digits@2"),
            ("state", "completed"),
        ]
        # Registered once more, by hand or by a repeated request: it stays the same version.
        _, again, new = registry.register(session, second, "digits")
        assert (again.number, new, model.counter) == (2, False, 2)
        _, other, new = registry.register(session, second, "numbers")
        assert (other.number, new) == (1, True)


def test_lineage_says_how_it_came_to_be(database: Database) -> None:
    with database.transaction() as session:
        scope = tenant(session, "ours")
        finished(scope, registers("digits"))
        parent = registry.find_version(scope, registry.find_model(scope, "digits"), "1")
        job = finished(scope, registers("digits"), pretrained_id=parent.id)
        child = registry.find_version(scope, registry.find_model(scope, "digits"), "latest")
        assert (child.number, child.parent_id) == (2, parent.id)
        lineage = child.lineage
        assert lineage["parent"] == {"id": parent.id, "model": "digits", "version": 1}
        assert lineage["data"] == FILES
        image = Catalogue.load().get("pytorch:2.13.0")
        assert image is not None
        assert lineage["image"] == {"reference": "pytorch:2.13.0", "digest": image.digest}
        assert lineage["manifest"] == job.manifest
        assert (lineage["run"]["attempt"], lineage["run"]["exit_code"]) == (1, 0)
        assert lineage["run"]["seconds"] >= 0
        assert lineage["metrics"] == {}
        final = {"last": 0.25, "min": 0.2, "max": 3.0, "step": 90}
        scope.add(JobMetric(job_id=job.id, name="train/loss", rank=1, **final))
        _, version, _ = registry.register(session, job, "numbers")
        assert version.lineage["metrics"] == {"train/loss": final}


def test_credentials_are_kept_for_the_version_and_go_with_it(database: Database) -> None:
    box = SecretBox([SecretStr(generate_key())])
    with database.transaction() as session:
        scope = tenant(session, "ours")
        store = {"id": "cos", "connection": {"auth_url": "http://s3", "region": "eu"}}
        job = finished(scope, store | {"training_results": {"container": "c", "prefix": "p"}})
        scope.add(Secret(id=new_id("sec"), name=f"{job.id}/cos", job_id=job.id, ciphertext=box.encrypt("key")))
        session.flush()
        _, version, _ = registry.register(session, job, "digits")
        assert (version.endpoint, version.region, version.container) == ("http://s3", "eu", "c")
        assert version.prefix == f"p/{job.id}"
        session.delete(job)  # and its secrets with it
        session.flush()
        kept = scope.all(scope.select(Secret))
        assert [(secret.id, box.decrypt(secret.ciphertext)) for secret in kept] == [(version.secret_id, "key")]
        assert "key" not in str(version.lineage)
        registry.delete_version(scope, version)
        assert scope.all(scope.select(Secret)) == []


def test_references(database: Database) -> None:
    with database.transaction() as session:
        scope, theirs = tenant(session, "ours"), tenant(session, "theirs")
        for _ in range(3):
            finished(scope, registers("digits"))
        model = registry.find_model(scope, "digits")
        registry.promote(scope, model, "production", 2, "user-ours")

        def number(version: str) -> int:
            return registry.find_version(scope, model, version).number

        assert [number(reference) for reference in ("1", "latest", "production")] == [1, 3, 2]
        assert registry.promote(scope, model, "production", 2, "user-ours") is False
        registry.promote(scope, model, "production", 3, "user-ours")
        assert number("production") == 3
        for version, words in (
            ("4", "no version 4: its latest is 3, its stages are production \\(3\\)"),
            ("0", "no version 0"),
            ("99999999999999999999", "no version 9"),
            ("staging", "no stage 'staging'"),
            ("\N{SUPERSCRIPT TWO}", "no stage"),
        ):
            with pytest.raises(UnknownModel, match=words):
                number(version)
        with pytest.raises(UnknownModel, match="no model 'digits' in this project"):
            registry.find_model(theirs, "digits")
        for stage in ("latest", "3", "Production", "", "x" * 64):
            with pytest.raises(ValueError, match="a stage is"):
                registry.promote(scope, model, stage, 1, "user-ours")


def test_what_is_in_use_is_not_deleted_and_no_number_is_given_twice(database: Database) -> None:
    with database.transaction() as session:
        scope = tenant(session, "ours")
        for _ in range(2):
            finished(scope, registers("digits"))
        model = registry.find_model(scope, "digits")
        second = registry.find_version(scope, model, "2")
        registry.promote(scope, model, "production", 2, "user-ours")
        with pytest.raises(InUse, match="digits@2 is digits@production"):
            registry.check_deletable(scope, model, second)
        registry.promote(scope, model, "production", None, "user-ours")
        assert registry.stages(scope, model) == {}
        child = Job(
            user_id="user-ours", name="tune", manifest={}, engine="local", priority=50, learners=1, retries=0,
            pretrained_id=second.id,
        )  # fmt: skip
        jobs.submit(scope, child, [])
        with pytest.raises(InUse, match=f"digits@2 is what job {child.id} \\(tune, QUEUED\\) starts from"):
            registry.check_deletable(scope, model, second)
        jobs.transition(session, child, JobState.HALTED, "halted")
        session.flush()
        registry.check_deletable(scope, model, second)
        registry.delete_version(scope, second)
        assert registry.find_version(scope, model, "latest").number == 1
        finished(scope, registers("digits"))
        assert registry.find_version(scope, model, "latest").number == 3


def test_jobs_that_complete_at_the_same_time_get_a_number_each(database: Database) -> None:
    with database.transaction() as session:
        tenant(session, "ours")
    together = threading.Barrier(4)
    failures: list[BaseException] = []

    def complete() -> None:
        try:
            with database.transaction() as session:
                together.wait(300)
                finished(Scope(session, "proj-ours"), registers("digits"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=complete) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with database.transaction() as session:
        scope = Scope(session, "proj-ours")
        assert sorted(version_row.number for version_row in scope.all(scope.select(ModelVersion))) == [1, 2, 3, 4]
        assert len(scope.all(scope.select(Model))) == 1


def test_agent_and_service_agree_on_what_a_listing_is() -> None:
    objects = [("ü/b", 2), ("a", 10_000_000_000), ("Z", 0)]
    stored = [Stored(key, size, "etag") for key, size in objects]
    assert of_learner.summary(stored, etags=False) == registry.summary(reversed(objects))
    assert of_learner.summary(stored, etags=True)["sha256"] != registry.summary(objects)["sha256"]
