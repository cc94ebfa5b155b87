"""No answer of scipy's quadratic assignment is better than ours."""

import random

import pytest

pytest.importorskip("scipy", reason="scipy is in the dev extra")

from benchmarks import placement as peers
from torusrun.orchestrator.place.placement.arrange import solve


@pytest.mark.parametrize("seed", range(25))
def test_no_worse_than_scipys_quadratic_assignment(seed: int) -> None:
    asked = peers.drawn(random.Random(seed), 4, 20, 6, float("inf"))
    mine = asked.cost(solve(asked, 60_000)[0])
    assert mine <= asked.cost(peers.assignment(asked, "faq", seed))
    assert mine <= asked.cost(peers.assignment(asked, "2opt", seed))


@pytest.mark.parametrize("seed", range(40))
def test_equal_to_the_exhaustive_optimum(seed: int) -> None:
    asked = peers.drawn(random.Random(1000 + seed), 2, 12, 6, 100_000)
    kinds, proved = solve(asked)
    assert proved and asked.cost(kinds) == peers.exhaustive(asked)
