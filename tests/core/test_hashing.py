"""Argon2 in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from weft_core.hashing import Hasher
from weft_core.tokens import hash_password, verify_password


@pytest.fixture
def hasher() -> Iterator[Hasher]:
    made = Hasher()
    yield made
    made.close()


def test_hashes_are_those_of_the_tokens_module(hasher: Hasher) -> None:
    password = 'ä "quoted"\nline \udc80'.replace("\udc80", "")
    assert verify_password(password, hasher.hash(password))
    hashed = hash_password(password)
    assert hasher.verify(password, hashed)
    assert not hasher.verify("another", hashed)
    assert not hasher.verify(password, "no hash")


def test_the_next_question_starts_a_process_that_has_ended(hasher: Hasher) -> None:
    hashed = hasher.hash("one")
    process = hasher._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    assert hasher.verify("one", hashed)
    assert hasher._process is not process


def test_it_gives_way_to_requests(hasher: Hasher) -> None:
    hasher.hash("one")
    assert hasher._process is not None
    assert os.getpriority(os.PRIO_PROCESS, hasher._process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
