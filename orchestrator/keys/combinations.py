"""The combinations of a sweep's values: one tuple of settings for each member. Every setting keeps its place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import yaml

from torusrun.orchestrator.keys.kinds import decimal, whole
from torusrun.orchestrator.keys.nodes import KeyValue, as_text, clipped, compose, form, mark_of
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError, shown
from torusrun.orchestrator.keys.sweep import KEY, MOST_MEMBERS, SweepKeys
from torusrun.training.recipe.near import did_you_mean

Member = tuple[KeyValue, ...]
SPACINGS = ("log", "linear")
NOT_SWEPT = {
    "name": "all members have the sweep's name",
    "site": "all members are at one site: submit a sweep for each",
    "sweep": "a member is one run",
}
HOW = "a list of values, {from: A, to: B, log: N} or {from: A, to: B, linear: N}"


def with_option(sweep: SweepKeys, text: str) -> SweepKeys:
    """The sweep with the values of `--sweep KEY=A,B,C`, or `--sweep 'KEY={from: A, to: B, log: N}'`.

    Raises SpecError if it cannot be read.
    """
    name = f"--sweep {clipped(text)}"
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise SpecError([Problem(Mark(name), "write it as KEY=A,B,C, as in --sweep train.optimizer.lr=0.1,0.2")])
    try:
        KEY.parse(key)
    except ValueError as error:
        raise SpecError([Problem(Mark(name), f"{shown(key)} {error}")]) from None
    node = compose(values if values.lstrip().startswith(("{", "[")) else f"[{values}]", name)
    assert node is not None  # the text is not blank
    return replace(sweep, values={**sweep.values, key: node})


def members(sweep: SweepKeys) -> list[Member]:
    """The settings of every member, in order: the last key varies fastest.

    Raises SpecError for values that cannot be read, for two equal members, and for too many.
    """
    for name in ("trials", "metric", "goal"):
        if getattr(sweep, name) is not None:
            raise SpecError([Problem(Mark(f"sweep.{name}"), "it is for a study: add study: optuna, or leave it out")])
    axes = [[KeyValue(key, value) for value in _values(key, node)] for key, node in sweep.values.items()]
    if not axes:
        raise SpecError([Problem(Mark("sweep"), f"it has no values; give a key {HOW}")])
    total = math.prod(map(len, axes))
    if total > MOST_MEMBERS:
        raise SpecError([Problem(Mark("sweep"), f"{total:,} combinations are more than {MOST_MEMBERS:,}")])
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
    _check_key(key, node)
    if isinstance(node, yaml.MappingNode):
        return _spaced(key, node)
    if isinstance(node, yaml.SequenceNode) and node.value:
        return list(node.value)
    given = "an empty list" if isinstance(node, yaml.SequenceNode) else form(node)
    hint = did_you_mean(key, ("at_once", "seed")) if "." not in key else ""
    raise SpecError([Problem(mark_of(node), f"{shown(key)} must have {HOW}, not {given}{hint}")])


def _check_key(key: str, node: yaml.Node) -> None:
    if why := NOT_SWEPT.get(key.partition(".")[0]):
        raise SpecError([Problem(mark_of(node), f"{shown(key)} cannot differ between members: {why}")])


def _spaced(key: str, node: yaml.MappingNode) -> list[yaml.Node]:
    """The values of {from: A, to: B, log: N} or {..., linear: N}; whole numbers if A and B are."""
    given = {as_text(k): v for k, v in node.value}
    spacing = [word for word in SPACINGS if word in given]
    if {*given} != {"from", "to", *spacing} or len(spacing) != 1:
        raise SpecError([Problem(mark_of(node), f"{shown(key)} must have {HOW}, not {as_text(node)}")])
    try:
        low, high = decimal(as_text(given["from"])), decimal(as_text(given["to"]))
        many = whole(as_text(given[spacing[0]]))
    except ValueError as error:
        raise SpecError([Problem(mark_of(node), f"{shown(key)}: {error} is not a number")]) from None
    if not 2 <= many <= MOST_MEMBERS or low >= high or (spacing == ["log"] and low <= 0):
        rules = f"'from' is less than 'to', above 0 for log, and there are 2 to {MOST_MEMBERS} values"
        raise SpecError([Problem(mark_of(node), f"{shown(key)}: {as_text(node)} is not possible: {rules}")])
    integral = all(not {*as_text(given[end])} & {*".eE"} for end in ("from", "to"))
    numbers = _numbers(low, high, many, logarithmic=spacing == ["log"])
    texts = [str(round(value)) if integral else f"{value:.6g}" for value in numbers]
    at = node.start_mark
    return [yaml.ScalarNode("", text, at, at) for text in dict.fromkeys(texts)]


def _numbers(low: float, high: float, many: int, *, logarithmic: bool) -> Iterator[float]:
    for place in range(many):
        share = place / (many - 1)
        yield low * (high / low) ** share if logarithmic else low + (high - low) * share


def _refuse_equal(members: Sequence[Member]) -> None:
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    for number, member in enumerate(members):
        same = seen.setdefault(tuple(sorted((setting.key, setting.text) for setting in member)), number)
        if same != number:
            where = mark_of(member[-1].node)
            raise SpecError([Problem(where, f"members {same} and {number} are the same: {in_words(member)}")])


def in_words(member: Member) -> str:
    """'train.lr=0.1, train.batch=64'."""
    return ", ".join(f"{setting.key}={setting.text}" for setting in member)
