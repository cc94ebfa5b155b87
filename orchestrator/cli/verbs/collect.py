"""
Checkpoints are verified against their manifests before and after copying; incomplete ones are not copied. Symbolic
links, FIFOs and devices are not copied either; each is reported. Several runs get a folder each, within FOLDER.

FOLDER appears when it is complete. If the copying was interrupted, the same command continues: files that are there
with the same content are not copied again.

--only takes patterns between commas. A pattern with a slash is a path in the run's folder, one without is a name at
any depth, and a folder stands for all in it. 'checkpoints/last' is the newest complete checkpoint.

examples:
  torusrun collect last results/digits
  torusrun collect 'digits*' results --checkpoints none
  torusrun collect last results/last --only 'checkpoints/last,metrics.jsonl,*.csv'
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.cli.verbs import chosen

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handle import Run


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=chosen.RUNS)
    parser.add_argument("into", metavar="FOLDER", help="the folder to create")
    which = "which checkpoints to copy; default: newest"
    parser.add_argument("--checkpoints", choices=("newest", "all", "none"), help=which)
    parser.add_argument("--only", metavar="PATTERNS", help="copy only these files, as in 'checkpoints/last,*.csv'")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal.remarks import busy
    from torusrun.orchestrator.run.state import selection

    if args.only is not None and args.checkpoints:
        raise UserError("--only chooses checkpoints, too, as in 'checkpoints/last': leave out --checkpoints")
    runs, folder = chosen.handles(args.run_ids), Path(args.into)
    names_one = len(args.run_ids) == 1 and len(runs) == 1 and not selection.is_pattern(args.run_ids[0])

    def copy(run: Run) -> None:
        into = folder if names_one else folder / run.id
        with busy(f"copying into {into}"):
            copied = run.collect(into, checkpoints=args.checkpoints or "newest", only=args.only or "")
        print(copied, flush=True)

    if names_one:
        copy(runs[0])
        return DONE
    return chosen.complained(chosen.refused(copy, runs))
