"""A sweep in the list of runs: one line for all its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from torusrun.orchestrator.base.shown.numbers import number, percent
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import number_of
from torusrun.orchestrator.run.state.attention import ORDER
from torusrun.orchestrator.run.state.view import View
from torusrun.training.counted import counted

BEFORE_OTHERS = (State.RUNNING, State.PENDING, State.UNKNOWN)  # the state of a sweep of which a member is in it


@dataclass(frozen=True)
class SweepView(View):
    """The view of a sweep: that of one member, with the sweep's name and state; `members` says how all of them are."""

    members: str = ""


def folded(views: Sequence[View]) -> list[View]:
    """The views with one for each sweep in place of its members, where its newest member was."""
    sweeps: dict[Path, list[View]] = {}
    for view in views:
        if sweep := RunFolder(Path(view.folder)).sweep:
            sweeps.setdefault(sweep, []).append(view)
    last = {id(members[-1]): _line(sweep, members) for sweep, members in sweeps.items()}
    inside = {id(view) for members in sweeps.values() for view in members}
    return [last.get(id(view), view) for view in views if id(view) in last or id(view) not in inside]


def _line(sweep: Path, members: Sequence[View]) -> SweepView:
    shown = {field.name: getattr(members[-1], field.name) for field in fields(View)}
    nothing = {"step": None, "total_steps": None, "eta_s": None, "loss": None, "accuracy": None, "hosts": ()}
    words = "; ".join(filter(None, (_counts(members), _best(members))))
    own = {"run": sweep.name, "state": state(members), "reason": "", "waiting": "", "pause": "", "damaged": ()}
    return SweepView(**{**shown, **nothing, **own, "left_out": "", "members": words})


def state(members: Sequence[View]) -> State:
    """The state of a sweep: RUNNING while a member runs, PENDING while one waits; at the end the worst."""
    states = {member.state for member in members}
    return next((one for one in (*BEFORE_OTHERS, *ORDER) if one in states), State.UNKNOWN)


def _counts(members: Sequence[View]) -> str:
    states = Counter(member.state for member in members)
    parts = ", ".join(f"{states[one]:,} {one.value}" for one in ORDER if states[one])
    return f"{counted(len(members), 'member')}: {parts}"


def _best(members: Sequence[View]) -> str:
    """The best accuracy so far, or else the least loss; '' without either."""
    accurate = [(view.accuracy, view) for view in members if view.accuracy is not None]
    if accurate:
        value, view = max(accurate, key=lambda one: one[0])
        return f"best accuracy {percent(value)} (member {_number(view)})"
    losses = [(view.loss, view) for view in members if view.loss is not None]
    if losses:
        value, view = min(losses, key=lambda one: one[0])
        return f"least loss {number(value)} (member {_number(view)})"
    return ""


def _number(view: View) -> int:
    return number_of(RunFolder(Path(view.folder)))
