"""A run on the terminal: one line that is redrawn, or, without a terminal, a new line now and then."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.text import Text

from torusrun.orchestrator.base.terminal import output
from torusrun.orchestrator.base.terminal.output import REMARK
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import draws
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import follow
from torusrun.orchestrator.run.state.outcome import DONE
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.progress_text import figures, remark, words
from torusrun.orchestrator.show.screen import printed
from torusrun.orchestrator.show.screen.printed import said_by

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
    styles = {"run": "bold", "state": view.state.colour}
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
    style = view.state.colour
    bar = ProgressBar(view.total_steps or 0, view.step or 0, width=room, complete_style=style, finished_style=style)
    text = Text.assemble(*((segment.text, segment.style or "") for segment in console.render(bar)))
    text.truncate(room, pad=True)
    return text


ENDING = f"ending: {DONE}"


def show(run: RunFolder) -> View:
    """Follow a run to its end on the terminal; returns the last view."""
    return _drawn(run) if draws() else printed.show([run])[0]


def _drawn(run: RunFolder) -> View:
    """Draw one line for each new view. Remarks that do not fit into it are printed once above it."""
    from rich.cells import cell_len
    from rich.live import Live
    from rich.text import Text

    console, shown = output.console(stderr=True), {""}
    with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        console.show_cursor()  # Live hides it; a killed `watch` could not show it again
        for view in follow(run):
            remarks = "" if view.state.over else plain(view.remarks)
            gist = re.sub(r"[0-9.]+", "", remarks)  # 'no step for 4 min' changes every minute
            fits = view.step is None and cell_len(words(view, "")) <= console.width
            if gist not in shown and remarks != ENDING and not fits:
                shown.add(gist)
                console.print(Text(remarks, REMARK))
            live.update(Line(view, said_by(run, view)), refresh=True)
    return view
