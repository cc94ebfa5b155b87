"""
examples:
  torusrun grids
  torusrun grids --network abci-h --local-batch 64
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.without_run(parser)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.predict.answers.grids import grids

    with busy("computing"):
        found = grids(*shared_arguments.links_and_device(args), args.local_batch)
    print(found.text(as_json=args.json))
    return DONE
