"""The members of a sweep: a tuple of settings for each combination of values. Each keeps its place in the file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import yaml

from torusrun.orchestrator.keys.nodes import KeyValue, clipped, compose, form, mark_of
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError, shown
from torusrun.orchestrator.keys.sweep import KEY, MOST_MEMBERS, SweepKeys
from torusrun.training.recipe.near import did_you_mean

Member = tuple[KeyValue, ...]
NOT_SWEPT = {
    "name": "all members have the sweep's name",
    "site": "all members are at one site: submit a sweep for each",
    "sweep": "a member is one run",
    "study": "a program asks Optuna itself (docs/guides/sweeps.md)",
}
HOW = "a list of values, as in [64, 128]"


def with_option(sweep: SweepKeys, text: str) -> SweepKeys:
    """The sweep with the values of `--sweep KEY=A,B,C`. Raises SpecError if it cannot be read."""
    name = f"--sweep {clipped(text)}"
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise _wrong(Mark(name), "write it as KEY=A,B,C, as in --sweep train.optimizer.lr=0.1,0.2")
    try:
        KEY.parse(key)
    except ValueError as error:
        raise _wrong(Mark(name), f"{shown(key)} {error}") from None
    node = compose(values if values.lstrip().startswith("[") else f"[{values}]", name)
    assert node is not None  # the text is not blank
    return replace(sweep, values={**sweep.values, key: node})


def members(sweep: SweepKeys) -> list[Member]:
    """The settings of every member, in order: the last key varies fastest.

    Raises SpecError for values that cannot be read, for two equal members, and for too many.
    """
    for key, node in sweep.values.items():
        if why := NOT_SWEPT.get(key.partition(".")[0]):
            raise _wrong(mark_of(node), f"{shown(key)} cannot differ between members: {why}")
    axes = [[KeyValue(key, value) for value in _values(key, node)] for key, node in sweep.values.items()]
    if not axes:
        raise _wrong(Mark("sweep"), f"it has no values; give a key {HOW}")
    total = math.prod(map(len, axes))
    if total > MOST_MEMBERS:
        raise _wrong(Mark("sweep"), f"{total:,} combinations are more than {MOST_MEMBERS:,}")
    members = [_combination(axes, number) for number in range(total)]
    _refuse_equal(members)
    return members


def _combination(axes: Sequence[Sequence[KeyValue]], number: int) -> Member:
    """Combination `number` of one setting from each axis."""
    settings: list[KeyValue] = []
    for axis in reversed(axes):
        number, place = divmod(number, len(axis))
        settings.append(axis[place])
    return tuple(reversed(settings))


def _values(key: str, node: yaml.Node) -> list[yaml.Node]:
    """The values of one key."""
    if isinstance(node, yaml.SequenceNode) and node.value:
        return list(node.value)
    given = "an empty list" if isinstance(node, yaml.SequenceNode) else form(node)
    hint = did_you_mean(key, ("at_once",)) if "." not in key else ""
    raise _wrong(mark_of(node), f"{shown(key)} must have {HOW}, not {given}{hint}")


def _refuse_equal(members: Sequence[Member]) -> None:
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    for number, member in enumerate(members):
        same = seen.setdefault(tuple(sorted((setting.key, setting.text) for setting in member)), number)
        if same != number:
            where = mark_of(member[-1].node)
            raise _wrong(where, f"members {same} and {number} are the same: {in_words(member)}")


def in_words(member: Member) -> str:
    """'train.lr=0.1, train.batch=64'."""
    return ", ".join(f"{setting.key}={setting.text}" for setting in member)


def _wrong(mark: Mark, message: str) -> SpecError:
    return SpecError([Problem(mark, message)])
