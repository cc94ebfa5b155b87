"""
Several runs need as few commands of the scheduler as one. Runs that were selected by a pattern or an option, and not
named, are shown first.

examples:
  torusrun cancel last
  torusrun cancel digits-20261101-120000-a1b2 digits-20261101-120500-c3d4
  torusrun cancel 'digits*'
  torusrun cancel --state pending --site abci-v --yes
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.terminal.remarks import result
from torusrun.orchestrator.cli.verbs import chosen

if TYPE_CHECKING:
    from torusrun.orchestrator.run.state.view import View


def arguments(parser: argparse.ArgumentParser) -> None:
    chosen.arguments(parser, "cancel")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.run.attempts.cancel import cancel_all

    runs = chosen.agreed_runs(args, "cancel", _is_to_cancel, "none of which is waiting or running")
    refused = cancel_all(runs)
    for asked in runs:
        if asked not in refused:
            watch = f"`torusrun watch {asked.run_id}` shows when it has ended"
            result(asked.run_id, f"cancellation of {asked.run_id} requested; {watch}")
    return chosen.complained(refused.values())


def _is_to_cancel(view: View) -> bool:
    """Whether the run, which a pattern or a filter selected, is not over, or is LOST and may still be at work."""
    from torusrun.orchestrator.run.attempts.cancel import is_unsure
    from torusrun.orchestrator.run.folder.run_folder import RunFolder

    return not view.state.over or not view.damaged and is_unsure(RunFolder(Path(view.folder)), view)
