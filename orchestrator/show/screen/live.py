"""A run on the terminal: one line that is redrawn, or, without a terminal, a new line now and then."""

from __future__ import annotations

import re
from collections.abc import Callable

from torusrun.orchestrator.base.terminal import output
from torusrun.orchestrator.base.terminal.colours import REMARK
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import draws
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import follow
from torusrun.orchestrator.run.state.outcome import DONE
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.progress_text import words
from torusrun.orchestrator.show.screen import printed
from torusrun.orchestrator.show.screen.printed import said_by

ENDING = f"ending: {DONE}"


def show(run: RunFolder, seen: Callable[[View], None] = lambda view: None) -> View:
    """Follow a run to its end on the terminal, and call `seen` with every view; returns the last one."""
    return _drawn(run, seen) if draws() else printed.show([run], seen)[0]


def _drawn(run: RunFolder, seen: Callable[[View], None]) -> View:
    """Draw one line for each new view. Remarks that do not fit into it are printed once above it."""
    from rich.cells import cell_len
    from rich.live import Live
    from rich.text import Text

    from torusrun.orchestrator.show.screen.bar import Line

    console, shown = output.console(stderr=True), {""}
    with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        console.show_cursor()  # Live hides it; a killed `watch` could not show it again
        for view in follow(run):
            seen(view)
            remarks = "" if view.state.over else plain(view.remarks)
            gist = re.sub(r"[0-9.]+", "", remarks)  # 'no step for 4 min' changes every minute
            fits = view.step is None and cell_len(words(view, "")) <= console.width
            if gist not in shown and remarks != ENDING and not fits:
                shown.add(gist)
                console.print(Text(remarks, REMARK))
            live.update(Line(view, said_by(run, view)), refresh=True)
    return view
