"""
example:
  torusrun plan examples/digits.yaml --set grid=4x1
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from orchestrator.commands import asked
from orchestrator.errors import DONE

if TYPE_CHECKING:
    from orchestrator.planning import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_file(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, with every value that was left to its default")


def run(args: argparse.Namespace) -> int:
    from orchestrator.planning import plan

    planned = plan(args.file, site=args.site, settings=args.settings)
    print(json.dumps(planned.as_json(), indent=1) if args.json else _words(planned))
    return DONE


def _words(planned: Plan) -> str:
    run, site, grid = planned.run, planned.site, planned.grid
    rows = {
        "run": planned.run_id,
        "site": f"{run.site} ({site.scheduler}, ranks started by {site.launcher})",
        "nodes": f"{run.nodes}, {planned.ranks_per_node} ranks and {site.node.gpus} GPUs on each",
        "grid": f"{grid}: {grid.y} rows of {grid.x} ranks",
        "time limit": f"{run.time_s:g} s, a checkpoint is asked for {site.stop_before_s:g} s before it",
        "training": f"{run.train.model} on {run.train.data}, {run.train.epochs} epochs, batch {run.train.batch} "
        f"({run.train.batch // planned.ranks} per rank), lr {run.train.lr:g}",
        "folder": str(planned.folder),
    }
    return "\n".join(f"{name:12}{value}" for name, value in rows.items())
