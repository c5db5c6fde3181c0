"""Horovod's warnings about missing ranks, in the form that its source has (horovod/common/stall_inspector.cc)."""

from __future__ import annotations

from weft_trainer.log.lines import Line
from weft_trainer.log.stall_inspector import StallInspector

WARNING = (
    "[2026-11-26 16:06:10.171430: W /tmp/horovod/common/stall_inspector.cc:107] One or more tensors were submitted to "
    "be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than "
    "60 seconds. This may indicate that different ranks are trying to submit different tensors or that only subset of "
    "ranks is submitting tensors, which will cause deadlock. "
)


def lines(*texts: str, source: str = "") -> list[Line]:
    return [Line(0, source + text, source) for text in texts]


def test_a_warning_is_no_sign_of_life_and_names_the_ranks() -> None:
    now = [100.0]
    inspector = StallInspector(lambda: now[0])
    assert inspector.missing() == {}
    assert not inspector.read(
        lines(WARNING, "Missing ranks:", "1: [allreduce.gradient, allreduce.bias]", source="[0] ")
    )
    assert not inspector.read(lines("3!: [a, b, c, d, e, f ...]", source="[0] "))
    assert inspector.missing() == {1: ["allreduce.gradient", "allreduce.bias"], 3: ["a", "b", "c", "d", "e", "f"]}
    assert not inspector.read(lines(WARNING, "Missing ranks:", "0: [weights]"))
    assert inspector.missing() == {0: ["weights"]}, "the last warning counts"
    now[0] += 189
    assert inspector.missing() == {0: ["weights"]}
    now[0] += 1
    assert inspector.missing() == {}, "the warning would have come again"


def test_all_other_lines_are_signs_of_life() -> None:
    inspector = StallInspector()
    assert inspector.read(lines("1: [allreduce.gradient]")), "without a warning before it"
    assert inspector.read(lines(WARNING, "Missing ranks:", "1: [gradient]", "epoch 3")), "among the warning's"
    assert inspector.read(lines("2: [a list of the program's own]")), "the warning is over"
    assert inspector.missing() == {1: ["gradient"]}
    assert inspector.read([*lines(WARNING, source="[0] "), *lines("2: [a list of another source]", source="[1] ")])
    assert not inspector.read([])
