"""
examples:
  torusrun status
  torusrun status last --json
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from orchestrator.errors import DONE

if TYPE_CHECKING:
    from orchestrator.watch.view import View


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="*", help="runs to show; default: all of yours")
    parser.add_argument("--json", action="store_true", help="as JSON, with hosts and grid")


def run(args: argparse.Namespace) -> int:
    from orchestrator.runs import index
    from orchestrator.watch.poll import views

    found = views([index.find(word) for word in args.run_ids] or index.runs())
    if args.json:
        print(json.dumps({"schema": 1, "runs": [view.as_json() for view in found]}, indent=1))
    else:
        print("\n".join(map(_line, found)) or "no runs yet; `torusrun submit RUN.yaml` makes one")
    return DONE


def _line(view: View) -> str:
    """One run in one line."""
    from orchestrator.watch.plain import plain

    waiting = "step unknown" if view.hosts else "not started"
    steps = f"step {view.step}/{view.total_steps}" if view.step is not None else waiting
    grid = f"grid {view.grid[0]}x{view.grid[1]}" if view.grid else "grid unknown"
    line = f"{view.run}  {view.state.value:9}  {steps}, {grid}, attempt {view.attempt}, job {view.job or 'unknown'}"
    line += f": {view.remarks}" if view.remarks else ""
    return plain(line + (f"; damaged: {'; '.join(view.damaged)}" if view.damaged else ""))
