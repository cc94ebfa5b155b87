"""
examples:
  torusrun resume last
  torusrun resume last --time 2h --wait
  torusrun resume last --nodes 2 --grid 4x2 --exclude node7
"""

from __future__ import annotations

import argparse

from orchestrator.base.errors import DONE
from orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    parser.add_argument("--time", metavar="DURATION", help="a new time limit, as in 2h")
    parser.add_argument("--nodes", metavar="N", type=int, help="a new number of nodes")
    parser.add_argument(
        "--grid", metavar="GRID", help="a new grid of ranks, as in 4x2 or auto; a grid of another size needs --nodes"
    )
    parser.add_argument(
        "--exclude",
        metavar="HOST",
        action="append",
        default=[],
        help="avoid this host, in later attempts too; a list as in n[3-5]; may be repeated",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="resume even if nobody knows whether the newest attempt is over; it ends when the new one begins",
    )
    parser.add_argument("--new-image", action="store_true", help="take the image that the run's `image` names now")
    shared_arguments.held(parser)
    parser.add_argument("--wait", action="store_true", help="follow the run to its end and exit with its outcome")


def run(args: argparse.Namespace) -> int:
    from orchestrator.cli.api import open_run

    resumed = open_run(args.run_id)
    checkpoint = resumed.resume(
        time=args.time,
        nodes=args.nodes,
        grid=args.grid,
        exclude=args.exclude,
        force=args.force,
        new_image=args.new_image,
        held=args.held,
    )
    origin = checkpoint.name if checkpoint else "the beginning: it has no complete checkpoint"
    print(f"{resumed.id} resumes from {origin}")
    if not args.wait:
        return DONE
    from orchestrator.cli.verbs.watch import follow_to_end

    return follow_to_end(resumed)
