"""
examples:
  torusrun logs last
  torusrun logs last --rank 3 --follow
"""

from __future__ import annotations

import argparse

from orchestrator.commands import asked
from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_id(parser)
    parser.add_argument(
        "--rank", type=int, help="one rank alone; default: the job and all ranks, each line with its origin"
    )
    parser.add_argument("--attempt", type=int, help="an earlier attempt; default: the newest")
    parser.add_argument("--follow", "-f", action="store_true", help="go on until the run is over")


def run(args: argparse.Namespace) -> int:
    from orchestrator.runs.index import find
    from orchestrator.watch.logs import lines

    for line in lines(find(args.run_id), attempt=args.attempt, rank=args.rank, until_over=args.follow):
        print(line, flush=args.follow)
    return DONE
