"""
The shell runs on the rank's host, in its image, with its variables. It needs no ssh, since the scheduler connects it.
For a held allocation (`torusrun hold`) it runs on the first host. Its exit code is the command's.

examples:
  torusrun shell last
  torusrun shell last --rank 3
  torusrun shell last --role rollout
  torusrun shell last -- nvidia-smi
"""

from __future__ import annotations

import argparse
import sys

from torusrun.orchestrator.cli.verbs import shared_arguments

TAKES_A_COMMAND = True


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    parser.add_argument(
        "--rank", metavar="N", type=int, default=0, help="on the node of this rank; default: %(default)s"
    )
    shared_arguments.role(parser)
    parser.usage = "torusrun shell [-h] [--rank N] [--role NAME] RUN [-- COMMAND ...]"


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.api import open_run

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return open_run(args.run_id).shell(*args.command, rank=args.rank, role=args.role, terminal=terminal)
