"""
The folder of a run has its logs, metrics, checkpoints and the copy of its code: all of it is removed for good. A run
that is not over, or for which another one waits, stays. Checkpoints that a command wrote elsewhere stay, too.

examples:
  torusrun rm last
  torusrun rm --state failed,cancelled --older-than 30d
  torusrun rm 'trial*' --yes
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE
from torusrun.orchestrator.base.terminal.remarks import busy, result
from torusrun.orchestrator.cli.verbs import chosen


def arguments(parser: argparse.ArgumentParser) -> None:
    chosen.arguments(parser, "remove", times=True)
    parser.add_argument("--force", action="store_true", help="also remove LOST runs, whose jobs may still run")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.shown.numbers import size
    from torusrun.orchestrator.upkeep import disk
    from torusrun.orchestrator.upkeep.remove import remove_all

    meant = chosen.chosen(args, "remove", lambda view: view.state.over, "none of which is over")
    with busy("measuring their disk space"):
        takes = sum(disk.of_path(run.folder) for run in meant.runs)
    if not chosen.agreed(
        [run.run_id for run in meant.runs], f"free {size(takes)}, and remove all files of", yes=args.yes
    ):
        return DONE
    with busy("removing them"):
        refused = remove_all(meant.runs, force=args.force)
    for run in meant.runs:
        if run not in refused:
            result(run.run_id, f"{run.run_id} removed")
    return chosen.complained(refused.values())
