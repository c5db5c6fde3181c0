"""The outbox and its deliveries, to a real HTTP server and a real mail server."""

from __future__ import annotations

import hashlib
import hmac
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from tests.processes import FORKS
from tests.receivers import Mailbox, Receiver, mail_server, receiver
from tests.workers.crashing import deliver_and_die
from tests.workers.test_sweeper import sweeping, until
from tests.workers.world import PROJECT, World

from weft_core.ids import new_id
from weft_core.lifecycle.states import JobState
from weft_core.settings import NotifySettings, OutgoingSettings, Settings, SmtpSettings
from weft_core.store import jobs
from weft_core.store.models import Delivery, Event, Job, Project, Secret
from weft_core.store.notifications import replay
from weft_workers.context import Context
from weft_workers.delivering import Deliverer, backoff
from weft_workers.sending import Sender, _seconds

_WAIT = 300.0


@pytest.fixture
def context(context: Context) -> Context:
    """Loopback is allowed, as an administrator allows a network of their own."""
    return replace(context, settings=changed(context.settings, outgoing=OutgoingSettings(allow=["127.0.0.1"])))


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def changed(settings: Settings, **sections: Any) -> Settings:
    return settings.model_copy(update=sections)


def target(url: str | None = None, *on: str, **more: Any) -> dict[str, Any]:
    states = list(on or ("COMPLETED", "FAILED", "HALTED"))
    return {"on": states, "format": "json", **({"url": url} if url else {}), **more}


def halted(world: World, *targets: dict[str, Any], **job: Any) -> str:
    """A job that has been halted, with the events SUBMITTED and HALTED."""
    job_id = world.submit(notify=list(targets), **job)
    with world.transaction() as session:
        jobs.transition(session, session.get_one(Job, job_id), JobState.HALTED, "halted by request")
    return job_id


def deliver(context: Context) -> None:
    deliverer = Deliverer(context)
    deliverer.run_due()
    assert deliverer.settle(_WAIT)


def deliveries(world: World) -> list[Delivery]:
    with world.transaction() as session:
        return list(session.scalars(select(Delivery).order_by(Delivery.event_id, Delivery.target)))


def make_due(world: World, seconds: float = 0) -> None:
    """As if all that waits had been queued so much earlier, and were due now."""
    with world.transaction() as session:
        session.execute(
            text("update deliveries set next_try_at = now(), queued_at = queued_at - make_interval(secs => :s) "
                 "where next_try_at is not null"),
            {"s": seconds},
        )  # fmt: skip


def waits(delivery: Delivery) -> float:
    assert delivery.next_try_at is not None
    assert delivery.tried_at is not None
    return (delivery.next_try_at - delivery.tried_at).total_seconds()


def keep_secret(world: World, name: str, value: str) -> None:
    with world.transaction() as session:
        ciphertext = world.context.box.encrypt(value)
        session.add(Secret(id=new_id("sec"), project_id=PROJECT, name=name, ciphertext=ciphertext))


def test_a_state_is_posted_once_signed_and_with_its_event(world: World, context: Context, hook: Receiver) -> None:
    keep_secret(world, "key", "geheim")
    job_id = halted(world, target(f"{hook.url}/in?x=1", secret="key"), labels={"team": "vision"})
    deliver(context)
    deliver(context)
    (request,) = hook.requests
    assert request.path == "/in?x=1"
    with world.transaction() as session:
        event = session.scalars(select(Event).where(Event.job_id == job_id, Event.state == "HALTED")).one()
    told = request.json
    assert told == {
        "id": f"{job_id}-{event.id}",
        "type": "state",
        "at": event.created_at.isoformat(),
        "message": "halted by request",
        "state": "HALTED",
        "previous_state": "QUEUED",
        "rule": None,
        "job": {
            "id": job_id,
            "name": "job",
            "project": "lab",
            "attempt": None,
            "labels": {"team": "vision"},
            "url": f"http://127.0.0.1:8080/jobs/{job_id}",
        },
    }
    assert request.headers["Weft-Event-Id"] == told["id"]
    assert request.headers["Content-Type"] == "application/json"
    # As a receiver verifies it.
    parts = dict(part.split("=") for part in request.headers["Weft-Signature"].split(","))
    expected = hmac.new(b"geheim", f"{parts['t']}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert parts["v1"] == expected
    assert abs(int(parts["t"]) - datetime.now(UTC).timestamp()) < 300
    (row,) = deliveries(world)
    assert (row.tries, row.status, row.next_try_at, row.failed_at) == (1, "HTTP 204", None, None)
    assert row.delivered_at is not None


def test_only_the_states_that_a_target_names_are_queued(world: World, context: Context, hook: Receiver) -> None:
    halted(world, target(hook.url, "QUEUED", "HALTED"), target(hook.url, "FAILED"), {**target(hook.url), "on": []})
    deliver(context)
    assert sorted(request.json["state"] for request in hook.requests) == ["HALTED", "QUEUED"]
    assert len({request.headers["Weft-Event-Id"] for request in hook.requests}) == 2
    assert all("Weft-Signature" not in request.headers for request in hook.requests)


def test_an_outbox_row_comes_and_goes_with_its_event(world: World, hook: Receiver) -> None:
    job_id = world.submit(notify=[target(hook.url)])

    def halt() -> None:
        with world.transaction() as session:
            jobs.transition(session, session.get_one(Job, job_id), JobState.HALTED, "halted by request")
            session.flush()
            if broken:
                raise ZeroDivisionError

    broken = True
    with pytest.raises(ZeroDivisionError):
        halt()
    assert deliveries(world) == []
    broken = False
    halt()
    (row,) = deliveries(world)

    def queue_again() -> None:
        with world.transaction() as session:
            again = {"id": "dlv-2", "project_id": PROJECT, "job_id": job_id, "event_id": row.event_id, "target": 0}
            session.add(Delivery(**again))

    with pytest.raises(IntegrityError):
        queue_again()


def test_a_worker_that_dies_after_sending_sends_the_same_again(world: World, context: Context, hook: Receiver) -> None:
    halted(world, target(hook.url))
    process = FORKS.Process(target=deliver_and_die, args=(context.settings,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(hook.requests) == 1
    deliver(context)
    assert len(hook.requests) == 1, "it may still be under way in the other worker"
    make_due(world)
    deliver(context)
    first, second = hook.requests
    assert first.headers["Weft-Event-Id"] == second.headers["Weft-Event-Id"]
    assert first.body == second.body
    (row,) = deliveries(world)
    assert (row.tries, row.status) == (2, "HTTP 204")


def test_two_workers_share_the_work(world: World, context: Context, hook: Receiver) -> None:
    for _ in range(3):
        halted(world, target(hook.url))
    first, second = Deliverer(context), Deliverer(context)
    assert len(first.claim()) == 3
    assert second.claim() == []


def test_a_receiver_in_trouble_is_tried_again_with_growing_pauses(
    world: World, context: Context, hook: Receiver
) -> None:
    halted(world, target(hook.url))
    pauses = []
    for _ in range(3):
        hook.answers.append((500, {}))
        deliver(context)
        (row,) = deliveries(world)
        assert (row.status, row.delivered_at, row.failed_at) == ("HTTP 500", None, None)
        pauses.append(waits(row))
        deliver(context)  # not before its time
        make_due(world)
    assert len(hook.requests) == 3
    assert all(low <= pause <= low * 2 for low, pause in zip((7.5, 15, 30), pauses, strict=True))
    deliver(context)
    (row,) = deliveries(world)
    assert (row.tries, row.status, row.next_try_at) == (4, "HTTP 204", None)
    assert len({request.headers["Weft-Event-Id"] for request in hook.requests}) == 1


def test_pauses_have_a_limit() -> None:
    assert 2700 <= backoff(40) <= 4500
    assert len({backoff(3) for _ in range(20)}) > 1


def test_retry_after_is_honoured(world: World, context: Context, hook: Receiver) -> None:
    halted(world, target(hook.url))
    hook.answers.append((429, {"Retry-After": "1800"}))
    deliver(context)
    (row,) = deliveries(world)
    assert 1800 <= waits(row) < 1900
    date = datetime.now(UTC) + timedelta(hours=2)
    assert 7100 < _seconds(date.strftime("%a, %d %b %Y %H:%M:%S GMT")) <= 7200
    for nonsense in ("soon", "-5", "1e9", "", "Mon, 99 Foo"):
        assert _seconds(nonsense) == 0


def test_after_a_day_it_has_failed_and_a_replay_begins_anew(world: World, context: Context, hook: Receiver) -> None:
    halted(world, target(hook.url))
    hook.answers += [(500, {}), (500, {})]
    deliver(context)
    make_due(world, 86_400)
    deliver(context)
    (row,) = deliveries(world)
    assert (row.tries, row.status, row.next_try_at) == (2, "HTTP 500", None)
    assert row.failed_at is not None
    with world.transaction() as session:
        replay(session.get_one(Delivery, row.id))
    deliver(context)
    (row,) = deliveries(world)
    assert (row.tries, row.status, row.failed_at) == (1, "HTTP 204", None)
    assert len({request.headers["Weft-Event-Id"] for request in hook.requests}) == 1


def test_a_replay_that_comes_while_a_try_is_under_way_is_not_lost(
    world: World, context: Context, hook: Receiver
) -> None:
    halted(world, target(hook.url))
    deliverer = Deliverer(context)
    (task,) = deliverer.claim()
    with world.transaction() as session:
        replay(session.get_one(Delivery, task.id))
    deliverer.finish(task, Sender(context.settings, context.box).send(task.target, None, task.notification))
    deliver(context)
    assert len(hook.requests) == 2


def test_a_redirect_is_not_followed(world: World, context: Context, hook: Receiver) -> None:
    halted(world, target(f"{hook.url}/from"))
    hook.answers.append((302, {"Location": f"{hook.url}/to"}))
    deliver(context)
    assert [request.path for request in hook.requests] == ["/from"]
    (row,) = deliveries(world)
    assert row.status == "HTTP 302: points to another address, which is not followed"
    assert row.next_try_at is not None


def test_private_addresses_are_not_called_unless_they_are_allowed(
    world: World, context: Context, hook: Receiver
) -> None:
    halted(world, target(hook.url))
    deliver(replace(context, settings=changed(context.settings, outgoing=OutgoingSettings())))
    assert hook.requests == []
    (row,) = deliveries(world)
    assert row.status is not None
    assert row.status.startswith("not called: expected https://")
    assert "127.0.0.1" not in row.status


def test_the_installations_own_store_is_not_called(world: World, context: Context) -> None:
    closed = changed(context.settings, outgoing=OutgoingSettings())
    halted(world, target(f"{closed.s3.endpoint}/{closed.s3.bucket}"))
    deliver(replace(context, settings=closed))
    (row,) = deliveries(world)
    assert row.status is not None
    assert row.status.startswith("not called: ")


def test_a_receiver_that_is_not_there_has_one_generic_status(world: World, context: Context) -> None:
    with receiver() as gone:
        pass
    halted(world, target(gone.url))
    deliver(context)
    (row,) = deliveries(world)
    assert row.status == "no answer"


def test_a_slow_receiver_holds_up_no_other(world: World, context: Context, hook: Receiver) -> None:
    with receiver() as slow:
        slow.hold = threading.Event()
        for _ in range(12):
            halted(world, target(slow.url))
        deliverer = Deliverer(context)
        deliverer.run_due()
        until(lambda: len(slow.requests) == 4)
        deliverer.run_due()
        with world.transaction() as session:
            session.add(Project(id="prj-2", name="other"))
        other = world.submit(notify=[target(hook.url)])
        with world.transaction() as session:
            job = session.get_one(Job, other)
            job.project_id = "prj-2"
            jobs.transition(session, job, JobState.HALTED, "halted by request")
        deliverer.run_due()
        until(lambda: len(hook.requests) == 1)
        assert len(slow.requests) == 4, "a project has four tries under way in a worker"
        slow.hold.set()
        assert deliverer.settle(_WAIT)


def test_the_sweeper_delivers_while_a_receiver_hangs(world: World, context: Context, hook: Receiver) -> None:
    with receiver() as slow:
        slow.hold = threading.Event()
        halted(world, target(slow.url), target(hook.url))
        with sweeping(context):
            until(lambda: len(hook.requests) == 1 and len(slow.requests) == 1)
            running = world.submit()
            until(lambda: world.job(running).state == "PENDING")
            slow.hold.set()


def test_slacks_form(world: World, context: Context, hook: Receiver) -> None:
    keep_secret(world, "slack", f"{hook.url}/services/T0/B0/x \n")
    job_id = halted(world, target(secret="slack", format="slack"), name="a <b> & *c*")
    deliver(context)
    (request,) = hook.requests
    assert request.path == "/services/T0/B0/x"
    assert request.json == {
        "text": f"*HALTED*: a &lt;b&gt; &amp; *c* (<http://127.0.0.1:8080/jobs/{job_id}|{job_id}>)\nhalted by request"
    }


def test_a_secret_that_is_gone(world: World, context: Context, hook: Receiver) -> None:
    halted(world, target(hook.url, secret="key"))
    deliver(context)
    assert hook.requests == [], "nothing is sent without its signature"
    (row,) = deliveries(world)
    assert row.status == "not sent: there is no secret named 'key' any more"


@contextmanager
def mailing(context: Context, **smtp: Any) -> Iterator[tuple[Mailbox, Context]]:
    with mail_server("weft", "geheim") as box:
        told = {"host": "127.0.0.1", "port": box.port, "tls": "none", "user": "weft", "password": SecretStr("geheim")}
        settings = NotifySettings(smtp=SmtpSettings(**{**told, "sender": "weft@example.com", **smtp}))
        yield box, replace(context, settings=changed(context.settings, notify=settings))


def test_an_email(world: World, context: Context) -> None:
    with mailing(context) as (box, mails):
        job_id = halted(world, target(email="ada@example.com"), name="über")
        deliver(mails)
    (mail,) = box.mails
    assert box.recipients == [["ada@example.com"]]
    assert (mail["From"], mail["To"], mail["Subject"]) == ("weft@example.com", "ada@example.com", "[weft] über: HALTED")
    assert mail["Message-ID"].startswith(f"<{mail['Weft-Event-Id']}.")
    body = mail.get_content()
    assert "halted by request" in body
    assert f"http://127.0.0.1:8080/jobs/{job_id}" in body
    (row,) = deliveries(world)
    assert (row.status, row.next_try_at) == ("sent", None)


@pytest.mark.parametrize(
    ("smtp", "to", "status"),
    [
        ({}, "nobody@example.com", "the mail server refuses the address"),
        ({"password": SecretStr("wrong")}, "ada@example.com", "the mail server does not take it"),
        ({"tls": "starttls"}, "ada@example.com", "the mail server does not take it"),
        ({"host": ""}, "ada@example.com", "not sent: this installation sends no e-mail any more"),
    ],
)
def test_an_email_that_is_not_taken(world: World, context: Context, smtp: dict[str, Any], to: str, status: str) -> None:
    with mailing(context, **smtp) as (box, mails):
        halted(world, target(email=to))
        deliver(mails)
    assert box.mails == []
    (row,) = deliveries(world)
    assert row.status == status
    assert row.next_try_at is not None
