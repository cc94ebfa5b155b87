"""
Each run gets a folder of its own within FOLDER, so that TensorBoard compares runs. A file from before is replaced.
Steps that an attempt computed again count once. Event files need tensorboard.

examples:
  torusrun export last metrics
  torusrun export 'digits*' curves --as tensorboard
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.cli.verbs import chosen

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handle import Run


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=chosen.RUNS)
    parser.add_argument("into", metavar="FOLDER", help="the folder for the files, which may exist")
    kind = "the format of the files; default: %(default)s"
    parser.add_argument("--as", dest="kind", choices=("csv", "tensorboard"), default="csv", help=kind)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal.plain import plain
    from torusrun.orchestrator.base.terminal.remarks import busy
    from torusrun.orchestrator.show.exported import format_of

    format_of(args.kind)  # a missing package is reported once

    def export(run: Run) -> None:
        with busy(f"reading the metrics of {run.id}"):
            made = run.export(Path(args.into), args.kind)
        print(plain(str(made)), flush=True)

    return chosen.complained(chosen.refused(export, chosen.handles(args.run_ids)))
