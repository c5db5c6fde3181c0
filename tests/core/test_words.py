"""Sizes, counts, durations and exit codes in words; the copies of the client and of the agent say the same as core."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft.words
import weft_trainer.words
from weft_core import words


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1 << 10, "1 KiB"),
        (3 << 19, "1.5 MiB"),
        (64 << 30, "64 GiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_sizes(number: int, said: str) -> None:
    assert words.size(number) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 GPUs"), (1, "1 GPU"), (0.5, "0.5 GPUs"), (2.0, "2 GPUs"), (1_281_167, "1,281,167 GPUs")]
)
def test_counts(number: float, said: str) -> None:
    assert words.count(number, "GPU") == said


@pytest.mark.parametrize(("seconds", "said"), [(0.5, "0.5s"), (90, "1m30s"), (3600, "1h"), (86_461, "24h1m1s")])
def test_durations(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-signal.SIGKILL, "killed by signal 9 (SIGKILL)"),
        (-127, "killed by signal 127"),  # a number without a name
    ],
)
def test_exit_codes(code: int, said: str) -> None:
    assert words.describe_exit(code) == said


NUMBERS = st.one_of(st.integers(-(1 << 60), 1 << 60), st.floats(allow_nan=False, allow_infinity=False))


@given(NUMBERS)
def test_the_clients_copy_says_the_same(number: float) -> None:
    assert weft.words.size(number) == words.size(number)
    assert weft.words.count(number, "file") == words.count(number, "file")


@given(NUMBERS)
def test_the_agents_copy_says_the_same(number: float) -> None:
    assert weft_trainer.words.size(number) == words.size(number)
    assert weft_trainer.words.count(number, "file") == words.count(number, "file")
    assert weft_trainer.words.duration(number) == words.duration(number)


@given(st.integers(-200, 255))
def test_the_agents_copy_describes_exits_in_the_same_words(code: int) -> None:
    assert weft_trainer.words.describe_exit(code) == words.describe_exit(code)
