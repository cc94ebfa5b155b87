"""The members that the values of a sweep make, and the mistakes in them."""

from __future__ import annotations

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.combinations import in_words, members, with_option
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.sweep import SweepKeys


def made(sweep: str, *options: str) -> list[str]:
    """The members of `sweep: ...` and of these options, in words."""
    spec, _ = read(RunSpec, f"name: x\nsite: local\nsweep: {sweep}\n", "run.yaml")
    keys = spec.sweep or SweepKeys()
    for option in options:
        keys = with_option(keys, option)
    return [in_words(member) for member in members(keys)]


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("{a: [1, 2], b: [x, y]}", ["a=1, b=x", "a=1, b=y", "a=2, b=x", "a=2, b=y"]),
        ("{a: [[1, 2], {b: 3}]}", ["a=[1, 2]", "a={b: 3}"]),
    ],
)  # fmt: skip
def test_members(sweep: str, expected: list[str]) -> None:
    assert made(sweep) == expected


def test_an_option_replaces_the_values_of_the_file_and_adds_to_them() -> None:
    assert made("{a: [1, 2]}", "a=5", "b=x,y") == ["a=5, b=x", "a=5, b=y"]
    assert made("null", "a=[1, [2, 3]]") == ["a=1", "a=[2, 3]"]


@pytest.mark.parametrize(
    ("sweep", "option", "says"),
    [
        ("{a: 3}", "", "run.yaml:3:12: 'a' must have a list of values"),
        ("{atonce: 3}", "", "did you mean 'at_once'?"),
        ("{a: []}", "", "not an empty list"),
        ("{a: {from: 1, to: 2}}", "", "run.yaml:3:12: 'a' must have a list of values, as in [64, 128] (ranges are"),
        ("{name: [a, b]}", "", "run.yaml:3:15: 'name' cannot differ between members"),
        ("{site.queue: [a, b]}", "", "all members are at one site"),
        ("{a: [1, 2, 1]}", "", "members 0 and 2 are the same: a=1"),
        ("{at_once: 2}", "", "it has no values"),
        ("{at_once: 0, a: [1]}", "", "'sweep.at_once' must be at least 1"),
        (f"{{a: {[*range(5000)]}, b: [1, 2]}}", "", "10,000 combinations are more than 5,000"),
        ("null", "a", "--sweep a: write it as KEY=A,B,C"),
        ("null", "a b=1", "--sweep a b=1: 'a b' is not the key of a run"),
        ("null", "a={from: 1}", "--sweep a={from: 1}: 'a' must have"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(sweep: str, option: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        made(sweep, *([option] if option else []))
    assert says in str(error.value)
