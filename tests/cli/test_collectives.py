"""The ranks that enter their collectives last."""

from __future__ import annotations

import pytest

from weft.collectives import latest


def entries(group: str, *at: float, first: int = 1) -> str:
    """Seconds as the file of a rank has them."""
    return "".join(f"{group} {first + n} all_reduce {int(time * 1e9)}\n" for n, time in enumerate(at))


def test_the_rank_that_the_others_wait_for_comes_first() -> None:
    """The first collective does not count: the ranks enter it as they start."""
    texts = {
        0: entries("0", 0.9, 1.0, 2.0, 3.0, 4.0),
        1: entries("0", 0.1, 1.1, 2.1, 3.1, 3.9),
        2: entries("0", 0.1, 1.05, 2.0, 3.05, 4.05),
    }
    found = latest(texts)
    assert found is not None
    assert (found.group, found.count) == ("0", 4)
    assert [(rank.rank, rank.last) for rank in found.ranks] == [(1, 0.75), (2, 0.25), (0, 0.0)]
    assert [rank.seconds for rank in found.ranks] == pytest.approx([0.1, 0.05, 0.0], abs=1e-6)


def test_only_what_all_ranks_of_the_largest_group_have_entered_is_compared() -> None:
    """A recorder keeps its newest entries, and one rank was asked a little later than the other."""
    texts = {
        0: entries("pair", 1, 2, 3, 4) + entries("0", 10.0, 11.0, 12.0, first=5),
        1: entries("pair", 1, 2, 3, 4) + entries("0", 11.5, 12.5, 13.5, first=6) + "cut o",
        2: entries("0", 10.0, 11.0, 12.0, 13.0, first=5),
    }
    found = latest(texts)
    assert found is not None
    assert (found.group, found.count) == ("0", 2)
    assert (found.ranks[0].rank, found.ranks[0].last) == (1, 1.0)
    assert found.ranks[0].seconds == pytest.approx(0.5)


def test_one_rank_alone_can_not_be_compared() -> None:
    assert latest({0: entries("0", 1, 2), 1: entries("other", 1, 2)}) is None
    assert latest({}) is None


def test_a_first_collective_alone_is_compared() -> None:
    found = latest({0: entries("0", 1.0), 1: entries("0", 3.0)})
    assert found is not None
    assert (found.count, found.ranks[0].rank) == (1, 1)
    assert found.ranks[0].seconds == pytest.approx(2.0)
