"""A run on the terminal: a progress bar where there is a terminal, a line now and then where there is none."""

from __future__ import annotations

import sys
import time

from orchestrator.runs.folder import RunFolder
from orchestrator.watch.follow import follow
from orchestrator.watch.plain import plain
from orchestrator.watch.view import View

LINE_EVERY_S = 10.0


def show(run: RunFolder) -> View:
    """Follow a run to its end on the terminal; its last view."""
    return _bar(run) if sys.stderr.isatty() else _lines(run)


def _bar(run: RunFolder) -> View:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    texts = [TextColumn("{task." + field + "}", markup=False) for field in ("description", "fields[figures]")]
    columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(plain(run.run_id), total=None, figures="")
        for view in follow(run):
            progress.update(
                task,
                description=f"{plain(run.run_id)} {view.state.value}",
                total=view.total_steps,
                completed=view.step or 0,
                figures=figures(view),
            )
    return view


def _lines(run: RunFolder) -> View:
    said, due_s = "", 0.0
    for view in follow(run):
        if view.state.value != said or time.monotonic() >= due_s:
            said, due_s = view.state.value, time.monotonic() + LINE_EVERY_S
            print(f"{plain(run.run_id)} {view.state.value} {figures(view)}".rstrip(), file=sys.stderr, flush=True)
    return view


def figures(view: View) -> str:
    """Progress in words: 'step 120/460, 812 images/s, accuracy 97.2 %', and what is remarkable about a run not over."""
    remarks = plain(view.remarks)
    if view.step is None:
        return remarks
    words = [f"step {view.step}/{view.total_steps}"]
    if view.images_per_s is not None:
        words.append(f"{view.images_per_s:,.0f} images/s")
    if view.accuracy is not None:
        words.append(f"accuracy {view.accuracy:.2%}")
    return ", ".join(words) + (f"; {remarks}" if remarks and not view.state.over else "")
