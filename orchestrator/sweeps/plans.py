"""The plans of a sweep's members, all of them made and checked before anything is written."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import yaml

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.load import RunSource, load
from torusrun.orchestrator.keys.nodes import KeyValue, clipped, compose, form, mark_of
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError, shown
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.sweep import KEY, MEMBERS, MOST_MEMBERS, SweepKeys
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.run.plan.plan import Plan, new_id, plan
from torusrun.training.counted import counted
from torusrun.training.recipe.near import did_you_mean

Member = tuple[KeyValue, ...]
NOT_SWEPT = {
    "name": "all members have the sweep's name",
    "site": "all members are at one site: submit a sweep for each",
    "sweep": "a member is one run",
    "study": "a program asks Optuna itself (docs/guides/sweeps.md)",
}
HOW = "a list of values, as in [64, 128]"


@dataclass(frozen=True)
class PlannedMember:
    """A run of a sweep: the settings in which it differs from the others, and its plan."""

    settings: dict[str, str]
    plan: Plan

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.plan.folder)


@dataclass(frozen=True)
class PlannedSweep:
    """All members of a sweep. At most `at_once` of them run at the same time; 0 for as many as have room."""

    folder: SweepFolder
    members: tuple[PlannedMember, ...]
    at_once: int

    @property
    def site(self) -> Site:
        return self.members[0].plan.site


@dataclass(frozen=True)
class SweepOptions:
    """What the options of a sweep add to its file: values of keys, and how many members run at the same time."""

    values: tuple[str, ...] = ()
    at_once: int | None = None


def plan_sweep(
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    asked: SweepOptions | None = None,
    later: bool = False,
    sweep_id: str | None = None,
) -> PlannedSweep:
    """The plans of all members of the sweep in the run file at `path`; nothing is written.

    `later` says that they begin after other runs; `sweep_id` is an id chosen elsewhere, if any. Raises SpecError for
    values that make no members, UserError with the members that do not fit.
    """
    loaded = load(path, site=site, settings=settings)
    sweep = _with_options(loaded.run.sweep or SweepKeys(), asked or SweepOptions())
    combinations = _combinations(sweep)
    folder = SweepFolder(absolute(loaded.site.runs) / (sweep_id or new_id(loaded.run.name)))
    planned = tuple(_planned(path, site, settings, folder, combinations, later))
    alone = schedulers.get(loaded.site.scheduler).traits.one_machine
    at_once = sweep.at_once or (1 if alone else 0)
    return PlannedSweep(folder, planned, at_once if at_once < len(planned) else 0)


def _with_options(sweep: SweepKeys, asked: SweepOptions) -> SweepKeys:
    keys = [text.partition("=")[0] for text in asked.values]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise UserError(f"--sweep {twice[0]}: it is given twice; write all its values in one option")
    for text in asked.values:
        sweep = _with_option(sweep, text)
    if asked.at_once is None:
        return sweep
    if wrong := MEMBERS.complaint(asked.at_once):
        raise UserError(f"at_once {wrong}, not {asked.at_once}")
    return replace(sweep, at_once=asked.at_once)


def _planned(
    path: RunSource,
    site: str | None,
    settings: Sequence[str],
    folder: SweepFolder,
    combinations: Sequence[Member],
    later: bool,
) -> Iterator[PlannedMember]:
    """Each member with its plan. Raises UserError with the first member that does not fit, and how many do not."""
    wrong: list[str] = []
    for number, member in enumerate(combinations):
        run = folder.member(number)
        try:
            made = plan(path, site=site, settings=[*settings, *member], run_id=run.run_id, later=later)
        except UserError as error:
            wrong.append(f"member {number} ({_in_words(member)}):\n{error}")
            continue
        yield PlannedMember({setting.key: setting.text for setting in member}, replace(made, folder=run.folder))
    if wrong:
        more = f"\nand {counted(len(wrong) - 1, 'other member')} of {len(combinations)}" if wrong[1:] else ""
        raise UserError(f"{wrong[0]}{more}")


def one_of(planned: PlannedSweep) -> Plan:
    """The plan whose files are sent for a sweep. Raises UserError if its members have different code."""
    plan = planned.members[0].plan
    if any(member.plan.code != plan.code for member in planned.members):
        raise UserError(f"through {planned.site.host} all members of a sweep have the same code: leave 'code' out")
    return replace(plan, run_id=planned.folder.sweep_id)


def _with_option(sweep: SweepKeys, text: str) -> SweepKeys:
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


def _combinations(sweep: SweepKeys) -> list[Member]:
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
    members = list(itertools.product(*axes))
    _refuse_equal(members)
    return members


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
            raise _wrong(where, f"members {same} and {number} are the same: {_in_words(member)}")


def _in_words(member: Member) -> str:
    """'train.lr=0.1, train.batch=64'."""
    return ", ".join(f"{setting.key}={setting.text}" for setting in member)


def _wrong(mark: Mark, message: str) -> SpecError:
    return SpecError([Problem(mark, message)])
