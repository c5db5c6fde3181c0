"""Ports that a learner reserves for its gang."""

import random
import socket
import subprocess
import sys

import pytest

from weft_trainer.machine.network import ReservedPorts


def _first_choices(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """The first random choices; real ones after that."""
    choices, really = list(numbers), random.randrange
    monkeypatch.setattr(random, "randrange", lambda *limits: choices.pop(0) if choices else really(*limits))


def _free(count: int) -> list[int]:
    with ReservedPorts(count) as ports:
        return list(ports.numbers)


def test_ports_are_bound_until_they_are_released() -> None:
    with ReservedPorts(2) as ports, socket.socket() as program:
        first, second = ports.numbers
        assert first != second
        with pytest.raises(OSError, match="in use"):
            program.bind(("127.0.0.1", first))
        ports.release()
        program.bind(("127.0.0.1", first))


def test_a_released_port_is_not_another_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens yet when a second learner, or a learner's Ray node, looks for ports."""
    taken, free = _free(2)
    _first_choices(monkeypatch, taken)
    with ReservedPorts(1) as ports:
        assert ports.numbers == (taken,)
        ports.release()
        _first_choices(monkeypatch, taken, free)
        with ReservedPorts(1) as others:
            assert others.numbers == (free,)
    with ReservedPorts(1, last=taken) as later:
        assert later.numbers == (taken,)


def test_a_claim_goes_with_its_process() -> None:
    (port,) = _free(1)
    code = f"""
from weft_trainer.machine.network import ReservedPorts
ports = ReservedPorts(1, last={port})
ports.release()
print(ports.numbers[0], flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as learner:
        assert learner.stdout is not None
        assert learner.stdout.readline() == f"{port}\n"
        with ReservedPorts(1, last=port) as others:
            assert port not in others.numbers
        learner.kill()
    with ReservedPorts(1, last=port) as others:
        assert others.numbers == (port,)


def test_a_wanted_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with ReservedPorts(2, last=port) as ports:
            assert port not in ports.numbers
