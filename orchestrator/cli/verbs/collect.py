"""
Checkpoints are verified against their manifests before and after copying; incomplete ones are not copied. Symbolic
links, FIFOs and devices are not copied either; each is reported.

example:
  torusrun collect last results/digits
"""

from __future__ import annotations

import argparse
from pathlib import Path

from orchestrator.base.errors import DONE
from orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    parser.add_argument("into", metavar="FOLDER", help="the folder to create")
    parser.add_argument(
        "--checkpoints",
        choices=("newest", "all", "none"),
        default="newest",
        help="which checkpoints to copy; default: %(default)s",
    )


def run(args: argparse.Namespace) -> int:
    from orchestrator.base.terminal.plain import say
    from orchestrator.remote import remote_runs
    from orchestrator.runs.collect import collect
    from orchestrator.runs.folder.index import find

    if away := remote_runs.find(args.run_id):
        from orchestrator.remote.collect import collect as collect_there

        print(collect_there(away, Path(args.into), args.checkpoints))
        return DONE
    print(collect(find(args.run_id), Path(args.into), args.checkpoints, say))
    return DONE
