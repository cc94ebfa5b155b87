"""Host lists written and read back: exactly, in order, with repeats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.hostlist import expand, fold
from orchestrator.errors import SiteError

hosts = st.from_regex(r"[a-z]{0,3}[0-9]{1,4}[a-z.-]{0,3}|[a-z]{1,5}", fullmatch=True)
runs = st.tuples(st.sampled_from(["n", "g", "r1-n"]), st.integers(0, 2000), st.integers(1, 40), st.integers(1, 5)).map(
    lambda run: [f"{run[0]}{number:0{run[3]}}" for number in range(run[1], run[1] + run[2])]
)


@given(st.lists(hosts | runs, min_size=1, max_size=12))
def test_folding_is_the_inverse_of_expanding(parts: list[str | list[str]]) -> None:
    names = [name for part in parts for name in (part if isinstance(part, list) else [part])]
    assert expand(fold(names)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[3,1]", ["n3", "n1"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("n[1,1]", ["n1", "n1"]),
        ("login,g0001,h2-x", ["login", "g0001", "h2-x"]),
    ],
)
def test_lists_are_as_slurm_writes_them(text: str, names: list[str]) -> None:
    assert fold(names) == text


def test_a_hundred_thousand_hosts() -> None:
    assert fold([f"g{i:06}" for i in range(100_000)]) == "g[000000-099999]"


def test_a_name_that_cannot_stand_in_a_list() -> None:
    with pytest.raises(SiteError, match="cannot stand in a host list"):
        fold(["n1", "n[2]"])
