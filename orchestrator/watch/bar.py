"""The one line that `watch` draws of a run: its bar, and around it as many figures as fit."""

from __future__ import annotations

from orchestrator.states import State
from orchestrator.watch.listing import number, percent, steps
from orchestrator.watch.pace import short
from orchestrator.watch.plain import plain
from orchestrator.watch.view import View
from orchestrator.watch.width import cut, display_width

LEAST_BAR = 10
MOST_BAR = 40
BLOCKS = ("█", "░")
ASCII = ("#", ".")
# What goes first where the line is too narrow; the state, the step and the bar stay.
LEFT_OUT = ("age", "accuracy", "speed", "loss", "eta", "run")


def line(view: View, said: str, width: int, marks: tuple[str, str] = BLOCKS) -> str:
    """The line in at most `width` columns; `said` is the newest line of rank 0's log, for a run without steps."""
    parts = {"run": plain(view.run), "state": view.state.value, "step": "", "eta": "", **figures(view)}
    if view.step is None:
        return cut(_joined({**parts, "remark": _remark(view, said)}), width)
    if view.total_steps:  # the same width from step to step, so that the bar keeps its own
        parts["step"] = f"step {view.step:>{len(str(view.total_steps))}}/{view.total_steps}"
    parts["eta"] = parts["eta"] or plain(view.pause).partition(", ")[0]  # without ', usual 0.2 s'
    left_out = list(LEFT_OUT)
    least = LEAST_BAR + 1 if view.total_steps else 0
    while left_out and display_width(_joined(parts)) + least > width:
        parts.pop(left_out.pop(0), None)
    if view.total_steps:
        room = min(width - display_width(_joined(parts)) - 1, MOST_BAR)
        bar = _bar(view.step / view.total_steps, room, marks)
        parts = {key: f"{text} {bar}" if key == "state" and bar else text for key, text in parts.items()}
    return cut(_joined(parts), width)


def words(view: View, said: str) -> str:
    """The same for a log: all figures, uncut, with what is remarkable about a run that is not over."""
    remark = _remark(view, said) if view.step is None else "" if view.state.over else plain(view.remarks)
    told = ", ".join(filter(None, [*figures(view).values(), remark]))
    return f"{plain(view.run)} {view.state.value} {told}".rstrip()


def _remark(view: View, said: str) -> str:
    """What to show of a run without steps: why it is as it is, or what it wrote, or that it writes nothing."""
    return plain(view.reason) or said or plain(view.pause)


def figures(view: View) -> dict[str, str]:
    """What is known of a run's progress, each in a few words, in the order in which it is shown."""
    known: dict[str, str] = {}
    if view.step is not None:
        known["step"] = f"step {steps(view)}"
    if view.eta_s is not None:
        known["eta"] = f"ETA {short(view.eta_s)}"
    if view.loss is not None:
        known["loss"] = f"loss {number(view.loss)}"
    if view.images_per_s is not None and not view.state.over:
        known["speed"] = f"{view.images_per_s:,.0f} images/s"
    if view.accuracy is not None:
        known["accuracy"] = f"accuracy {percent(view.accuracy)}"
    if view.age_s is not None and view.state in (State.PENDING, State.RUNNING, State.UNKNOWN):
        known["age"] = f"age {short(view.age_s)}"
    return known


def _joined(parts: dict[str, str]) -> str:
    return " ".join(filter(None, parts.values()))


def _bar(share: float, room: int, marks: tuple[str, str]) -> str:
    full = min(max(int(share * room), 0), room)
    return marks[0] * full + marks[1] * (room - full) if room >= LEAST_BAR else ""
