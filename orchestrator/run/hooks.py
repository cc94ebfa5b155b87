"""What rooms do when something happens to a run: the kernel calls these hooks, and imports no room.

HOOKS is the whole list. A function is imported when it is called first, so a run does not pay for what it does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder.events import Event
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder

if TYPE_CHECKING:
    from torusrun.orchestrator.run.plan.plan import Plan
    from torusrun.orchestrator.schedulers.launchers import Launcher


HOOKS = {  # functions of rooms, as 'PACKAGE.MODULE:FUNCTION'
    "hosts": ("nodes.preflight:passed",),
    "started": ("upkeep.notices:started",),
    "ended": ("run.bad_nodes.noted:ended", "upkeep.notices:ended"),
    "over": ("upkeep.notices:over",),
    "seen_over": ("upkeep.notices:from_client",),
}


@dataclass(frozen=True)
class Over:
    """A run that a command of its user sees to be over."""

    run: RunFolder
    number: int  # of its last attempt
    at: Sequence[str]  # the moments for which it wants notices
    state: State
    events: Sequence[Event]


def sound_hosts(
    plan: Plan, run: RunFolder, attempt: Attempt, hosts: Sequence[str], starter: Launcher,
    asked: Callable[[], End | None],
) -> Sequence[str] | End:  # fmt: skip
    """The hosts that a check finds sound; the attempt's end if too few are left, or if it is `asked` to stop."""
    for hook in _hooks("hosts"):
        answer: Sequence[str] | End = hook(plan, run, attempt, hosts, starter, asked)
        if isinstance(answer, End):
            return answer
        hosts = answer
    return hosts


def started(run: RunFolder, number: int, plan: Plan) -> None:
    """The event `started` of an attempt is in the ledger."""
    for hook in _hooks("started"):
        hook(run, number, plan)


def ended(run: RunFolder, number: int, end: End, *, wait: bool = False) -> None:
    """The end of an attempt is recorded. `wait` says that the job ends now, and with it what runs beside it.

    The ledger has the end if it is certain; else the scheduler may know more.
    """
    for hook in _hooks("ended"):
        hook(run, number, end, wait=wait)


def over(run: RunFolder, number: int, plan: Plan) -> None:
    """No other attempt follows the attempt `number` of a run that keeps going, and its job ends now."""
    for hook in _hooks("over"):
        hook(run, number, plan)


def seen_over(runs: Sequence[Over]) -> None:
    """A command of the user sees that these runs are over."""
    if runs:
        for hook in _hooks("seen_over"):
            hook(runs)


def _hooks(moment: str) -> Iterator[Callable[..., Any]]:
    for hook in HOOKS[moment]:
        module, _, function = hook.partition(":")
        yield getattr(import_module(f"torusrun.orchestrator.{module}"), function)
