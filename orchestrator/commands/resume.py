"""
examples:
  torusrun resume last
  torusrun resume last --time 2h --wait
"""

from __future__ import annotations

import argparse

from orchestrator.commands import asked
from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_id(parser)
    parser.add_argument("--time", metavar="DURATION", help="another time limit than before, as in 2h")
    parser.add_argument(
        "--force",
        action="store_true",
        help="although it is not certain that the newest attempt is over: it ends when the new one begins",
    )
    parser.add_argument("--new-image", action="store_true", help="although the container image has changed")
    parser.add_argument("--wait", action="store_true", help="follow the run to its end and exit with its outcome")


def run(args: argparse.Namespace) -> int:
    from orchestrator.api import open_run

    resumed = open_run(args.run_id)
    checkpoint = resumed.resume(time=args.time, force=args.force, new_image=args.new_image)
    origin = checkpoint.path.name if checkpoint else "the beginning: it has no complete checkpoint"
    print(f"{resumed.id} goes on from {origin}")
    if not args.wait:
        return DONE
    from orchestrator.commands.watch import follow_to_end

    return follow_to_end(resumed.folder)
