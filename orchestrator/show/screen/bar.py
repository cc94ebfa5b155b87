"""The one line of `watch` for a run on a terminal: its bar, with as many figures as fit."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.text import Text

from torusrun.orchestrator.base.terminal.colours import REMARK, of
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.progress_text import figures, remark

LEAST_BAR = 10
MOST_BAR = 40
# Parts in the order in which a narrow line drops them; the state, the step and the bar stay.
LEFT_OUT = ("age", "forecast", "accuracy", "speed", "loss", "eta", "run")


@dataclass(frozen=True)
class Line:
    """`view` in one line, as wide as the terminal when it is drawn.

    `said` is the newest line of rank 0's log, for a run without steps. `end` follows the line.
    """

    view: View
    said: str
    end: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view, width = self.view, options.max_width
        parts = _parts(view, self.said)
        least = LEAST_BAR + 1 if view.step is not None and view.total_steps else 0
        for name in LEFT_OUT if view.step is not None else ():
            if _joined(parts).cell_len + least > width:
                parts.pop(name, None)
        room = min(width - _joined(parts).cell_len - 1, MOST_BAR)
        if least and room >= LEAST_BAR:
            parts["state"] = Text.assemble(parts["state"], " ", _bar(view, room, console))
        line = _joined(parts)
        line.end = self.end
        yield line


def _parts(view: View, said: str) -> dict[str, Text]:
    texts = {"run": plain(view.run), "state": view.state.value, "step": "", "eta": "", **figures(view)}
    styles = {"run": "bold", "state": of(view.state)}
    if view.step is None:
        texts["remark"] = remark(view, said)
    elif view.total_steps:  # equal width from step to step, so that the bar keeps its width
        texts["step"] = f"step {view.step:>{len(str(view.total_steps))}}/{view.total_steps}"
    if view.step is not None and not texts["eta"]:
        texts["eta"], styles["eta"] = plain(view.pause).partition(", ")[0], REMARK  # without ', usual 0.2 s'
    return {name: Text(text, styles.get(name, "")) for name, text in texts.items() if text}


def _joined(parts: dict[str, Text]) -> Text:
    return Text(" ", no_wrap=True, overflow="ellipsis", end="").join(parts.values())


def _bar(view: View, room: int, console: Console) -> Text:
    """A bar of `room` columns; on a terminal without colours, the remaining part is blank."""
    style = of(view.state)
    bar = ProgressBar(view.total_steps or 0, view.step or 0, width=room, complete_style=style, finished_style=style)
    text = Text.assemble(*((segment.text, segment.style or "") for segment in console.render(bar)))
    text.truncate(room, pad=True)
    return text
