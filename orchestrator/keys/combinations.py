"""The members of a sweep: a tuple of settings for each combination of values, or the search space of a study.

Every setting keeps its place in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import yaml

from torusrun.orchestrator.keys.kinds import decimal, whole
from torusrun.orchestrator.keys.nodes import KeyValue, as_text, clipped, compose, form, is_null, mark_of
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError, shown
from torusrun.orchestrator.keys.study import Searched, Study
from torusrun.orchestrator.keys.sweep import KEY, MOST_MEMBERS, SweepKeys
from torusrun.training.recipe.near import did_you_mean

Member = tuple[KeyValue, ...]
NOT_SWEPT = {
    "name": "all members have the sweep's name",
    "site": "all members are at one site: submit a sweep for each",
    "sweep": "a member is one run",
}
HOW = "a list of values, as in [64, 128] (ranges are for a study)"
HOW_SEARCHED = "a list of values, {from: A, to: B}, {from: A, to: B, log: true} or {from: A, to: B, step: S}"
MAY_BE_SEARCHED = ("train", "env")
NOT_SEARCHED = ("train.recipe", "train.phases")
LARGEST = 1e15


def with_option(sweep: SweepKeys, text: str) -> SweepKeys:
    """The sweep with the values of `--sweep KEY=A,B,C`, or the range `--sweep 'KEY={from: A, to: B}'` of a study.

    Raises SpecError if it cannot be read.
    """
    name = f"--sweep {clipped(text)}"
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise _wrong(Mark(name), "write it as KEY=A,B,C, as in --sweep train.optimizer.lr=0.1,0.2")
    try:
        KEY.parse(key)
    except ValueError as error:
        raise _wrong(Mark(name), f"{shown(key)} {error}") from None
    node = compose(values if values.lstrip().startswith(("{", "[")) else f"[{values}]", name)
    assert node is not None  # the text is not blank
    return replace(sweep, values={**sweep.values, key: node})


def members(sweep: SweepKeys) -> list[Member]:
    """The settings of every member, in order: the last key varies fastest.

    Raises SpecError for values that cannot be read, for two equal members, and for too many.
    """
    for name in ("trials", "metric", "goal"):
        if getattr(sweep, name) is not None:
            raise _wrong(Mark(f"sweep.{name}"), "it is for a study: add study: optuna, or leave it out")
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
    _check_key(key, node)
    if isinstance(node, yaml.SequenceNode) and node.value:
        return list(node.value)
    given = "an empty list" if isinstance(node, yaml.SequenceNode) else form(node)
    hint = did_you_mean(key, ("at_once", "seed")) if "." not in key else ""
    raise _wrong(mark_of(node), f"{shown(key)} must have {HOW}, not {given}{hint}")


def _check_key(key: str, node: yaml.Node) -> None:
    if why := NOT_SWEPT.get(key.partition(".")[0]):
        raise _wrong(mark_of(node), f"{shown(key)} cannot differ between members: {why}")


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


def study(sweep: SweepKeys) -> Study:
    """The study of a sweep. Raises SpecError for keys that are missing or wrong, or that a study does not take."""
    for name, means in (("trials", "how many members it has"), ("metric", "what it compares"), ("goal", "max or min")):
        if getattr(sweep, name) is None:
            raise _wrong(Mark("sweep"), f"a study needs {name!r}: {means}")
    if not sweep.values:
        raise _wrong(Mark("sweep"), f"its study has nothing to choose; give a key {HOW_SEARCHED}")
    searched = tuple(_searched(key, node) for key, node in sweep.values.items())
    return Study(sweep.metric or "", sweep.goal == "max", sweep.seed, searched)


def checked_members(sweep: SweepKeys, study: Study) -> Iterator[Member]:
    """Members with the values of each key that are checked before a submission, and the first values of the others."""
    at = {searched.key: sweep.values[searched.key].start_mark for searched in study.searched}
    first = {searched.key: searched.checked[0] for searched in study.searched}
    yield tuple(_value(key, text, at[key]) for key, text in first.items())
    for searched in study.searched:
        for text in searched.checked[1:]:
            yield tuple(_value(key, own, at[key]) for key, own in {**first, searched.key: text}.items())


def _value(key: str, text: str, at: yaml.Mark) -> KeyValue:
    return KeyValue(key, yaml.ScalarNode("", text, at, at))


def _searched(key: str, node: yaml.Node) -> Searched:
    section = key.partition(".")[0]
    if section not in MAY_BE_SEARCHED or key in (*MAY_BE_SEARCHED, *NOT_SEARCHED):
        why = "a study chooses values of train and env, in the jobs"
        raise _wrong(mark_of(node), f"{shown(key)} must be known before the submission: {why}")
    if isinstance(node, yaml.MappingNode):
        return _range(key, node)
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        given = "an empty list" if isinstance(node, yaml.SequenceNode) else form(node)
        raise _wrong(mark_of(node), f"{shown(key)} must have {HOW_SEARCHED}, not {given}")
    for value in node.value:
        if not isinstance(value, yaml.ScalarNode) or is_null(value):
            raise _wrong(mark_of(value), f"{shown(key)}: a study chooses from words and numbers, not {form(value)}")
    choices = tuple(value.value for value in node.value)
    if len({*choices}) < len(choices):
        raise _wrong(mark_of(node), f"{shown(key)} has a value twice: {as_text(node)}")
    return Searched(key, choices)


def _range(key: str, node: yaml.MappingNode) -> Searched:
    """The range in {from: A, to: B}, with log: true or step: S; of whole numbers if all of its numbers are."""
    given = {as_text(k): as_text(v) for k, v in node.value}
    if not {"from", "to"} <= {*given} <= {"from", "to", "log", "step"} or given.get("log", "true") not in (
        "true",
        "false",
    ):
        raise _wrong(mark_of(node), f"{shown(key)} must have {HOW_SEARCHED}, not {as_text(node)}")
    numbers = {name: given[name] for name in ("from", "to", "step") if name in given}
    integral = all(not {*text} & {*".eE"} for text in numbers.values())
    try:
        read = {name: float(whole(text)) if integral else decimal(text) for name, text in numbers.items()}
    except ValueError as error:
        raise _wrong(mark_of(node), f"{shown(key)}: {error} is not a number") from None
    low, high, step, log = read["from"], read["to"], read.get("step"), given.get("log") == "true"
    fits = low < high and max(abs(low), abs(high)) < LARGEST and (low > 0 or not log)
    if not fits or (step is not None and (log or not 0 < step <= high - low)):
        rules = "'from' is less than 'to', above 0 for log, and 'step' fits between them, without log"
        raise _wrong(mark_of(node), f"{shown(key)}: {as_text(node)} is not possible: {rules}")
    if step:
        high = low + step * math.floor((high - low) / step + 1e-9)
    return Searched(key, (), low, high, log, step, integral)


def _wrong(mark: Mark, message: str) -> SpecError:
    return SpecError([Problem(mark, message)])
