"""
Checkpoints are verified against their manifests before and after copying; torn ones stay behind.

example:
  torusrun collect last results/digits
"""

from __future__ import annotations

import argparse

from orchestrator.commands import asked
from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_id(parser)
    parser.add_argument("into", metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--checkpoints", choices=("newest", "all", "none"), default="newest", help="default: %(default)s"
    )


def run(args: argparse.Namespace) -> int:
    from orchestrator.api import open_run

    print(open_run(args.run_id).collect(args.into, checkpoints=args.checkpoints))
    return DONE
