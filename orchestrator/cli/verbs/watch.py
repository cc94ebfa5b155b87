"""
On a terminal the runs fill the screen. Many runs are a table. One run shows its
progress, its loss, its nodes, the first error and the end of rank 0's log. Up
and down (or k and j) select a run, enter shows it, n shows all its nodes and
ranks, escape goes back, q leaves. Submitted runs continue. Without a terminal, a
line is printed for each change, and now and then for each run that is not over.
A run that records no steps shows the newest line of rank 0's log.

exit codes: 0 all these runs are COMPLETED, 1 at least one is not

examples:
  torusrun watch
  torusrun watch last
  torusrun watch 'digits*'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, RUN_FAILED
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.remarks import draws, is_quiet, warn
from torusrun.orchestrator.cli.verbs import chosen

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handle import Run, Sweep
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.run.state.view import View

MOST_ROWS = 40  # rows of the table that stays on a terminal


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_ids", metavar="RUN", nargs="*", help="runs, or patterns as in 'digits*'; default: all that are not over"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, once they are over: how they ended")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.run.state import selection

    runs = selection.named(args.run_ids) if args.run_ids else chosen.at_work()
    if args.json:
        return _as_json(runs)
    if not runs:
        print("no run is pending or running; `torusrun watch last` shows the newest one")
        return DONE
    return _outcome(_follow(runs))


def _as_json(runs: Sequence[RunFolder]) -> int:
    """Wait for the runs, and print their views as `status` does."""
    import json

    from torusrun.orchestrator.base.terminal.remarks import set_quiet
    from torusrun.orchestrator.show.screen import printed

    set_quiet(True)
    views = printed.show(runs) if runs else []
    print(json.dumps({"schema": 1, "runs": [view.as_json() for view in views]}, indent=1))
    return _outcome(views)


def _outcome(views: Sequence[View]) -> int:
    return DONE if all(view.state is State.COMPLETED for view in views) else RUN_FAILED


def _follow(runs: Sequence[RunFolder]) -> list[View]:
    """Show the runs until they are over or the user leaves, then their table."""
    if draws():
        return _on_screen(runs)
    from torusrun.orchestrator.show.screen import printed

    views = printed.show(runs)
    _table(runs, views)
    return views


def _on_screen(runs: Sequence[RunFolder]) -> list[View]:
    from torusrun.orchestrator.show.screen.screen import Screen

    screen = Screen(runs)
    try:
        screen.follow()
    except KeyboardInterrupt:
        _table(runs, screen.views)
        raise
    _table(runs, screen.views)
    return screen.views


def _table(runs: Sequence[RunFolder], views: Sequence[View]) -> None:
    from torusrun.orchestrator.base.terminal import output
    from torusrun.orchestrator.show.listing import listing
    from torusrun.orchestrator.show.screen.printed import end_rows, show_table

    if is_quiet():
        return _complain(views)
    if len(views) == 1:
        show_table(end_rows(runs[0], views[0]), views[0].state)
        return
    from torusrun.orchestrator.run.state.view import counts, ordered

    width = output.width(sys.stdout)
    shown = views if width is None else ordered(views)[:MOST_ROWS]
    print("\n".join(listing(shown).lines(width)))
    if len(shown) < len(views):
        print(f"{counts(views)}; `torusrun status` shows all")


def _complain(views: Sequence[View]) -> None:
    """Print how those runs ended that are not COMPLETED."""
    for view in views:
        if view.state.over and view.state is not State.COMPLETED:
            warn(f"{view.run} is {view.state.value}: {view.reason}")


def follow_to_end(submitted: Run | Sweep) -> int:
    """Show a run, or the members of a sweep, until all are over; returns the exit code for their outcome."""
    from torusrun.orchestrator.cli.api import RunThere, Sweep, SweepThere

    if isinstance(submitted, RunThere | SweepThere):
        from torusrun.orchestrator.cli import elsewhere
        from torusrun.orchestrator.remote import remote_runs

        is_run = isinstance(submitted, RunThere)
        return elsewhere.follow([submitted.known] if is_run else remote_runs.members(submitted.known))
    return _outcome(_follow(submitted.folders if isinstance(submitted, Sweep) else [submitted.folder]))
