"""
Checkpoints are verified against their manifests before and after copying; incomplete ones are not copied. Symbolic
links, FIFOs and devices are not copied either; each is reported. Several runs get a folder each, within FOLDER.

examples:
  torusrun collect last results/digits
  torusrun collect 'digits*' results --checkpoints none
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.base.errors import DONE
from orchestrator.cli.verbs import chosen

if TYPE_CHECKING:
    from orchestrator.remote.remote_runs import Known
    from orchestrator.runs.folder.run_folder import RunFolder


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=chosen.RUNS)
    parser.add_argument("into", metavar="FOLDER", help="the folder to create")
    parser.add_argument(
        "--checkpoints",
        choices=("newest", "all", "none"),
        default="newest",
        help="which checkpoints to copy; default: %(default)s",
    )


def run(args: argparse.Namespace) -> int:
    from orchestrator.base.terminal.remarks import busy, warn
    from orchestrator.remote import remote_runs
    from orchestrator.remote.collect import collect as collect_there
    from orchestrator.runs.collect import collect
    from orchestrator.runs.state import selection

    words, away = remote_runs.split(args.run_ids)
    runs, folder = selection.named(words) if words else [], Path(args.into)
    if len(args.run_ids) == 1 and len(runs) < 2 and not selection.is_pattern(args.run_ids[0]):
        with busy(f"copying into {folder}"):
            copied = (
                collect_there(away[0], folder, args.checkpoints)
                if away
                else collect(runs[0], folder, args.checkpoints, warn)
            )
        print(copied)
        return DONE

    def here(run: RunFolder) -> None:
        print(collect(run, folder / run.run_id, args.checkpoints, warn), flush=True)

    def there(run: Known) -> None:
        print(collect_there(run, folder / run.run, args.checkpoints), flush=True)

    return chosen.complained([*chosen.refused(here, runs), *chosen.refused(there, away)])
