"""
A narrow terminal leaves out age, accuracy, images/s, loss, ETA and the run's
name, in this order; state, bar and step stay. Without a terminal, a line is
printed now and then. A run that records no steps shows the newest line of rank
0's log.

exit codes: 0 the run is COMPLETED, 1 it ended otherwise

example:
  torusrun watch last
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from orchestrator.commands import asked
from orchestrator.errors import DONE, RUN_FAILED
from orchestrator.states import State

if TYPE_CHECKING:
    from orchestrator.runs.folder import RunFolder


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_id(parser)


def run(args: argparse.Namespace) -> int:
    from orchestrator.runs.index import find

    return follow_to_end(find(args.run_id))


def follow_to_end(folder: RunFolder) -> int:
    """Show a run until it is over, then its table; the exit code that its outcome means."""
    from orchestrator.watch import live, report

    view = live.show(folder)
    report.show(folder, view)
    return DONE if view.state is State.COMPLETED else RUN_FAILED
