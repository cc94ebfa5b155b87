"""
examples:
  torusrun scale
  torusrun scale 4..100000 --svg scale.svg
  torusrun scale 8..4096 --network abci-h --local-batch 64 --json
"""

from __future__ import annotations

import argparse
import re

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.cli.verbs import shared_arguments

MOST_GPUS = 10_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gpus", metavar="A..B", nargs="?", default="4..100000", help="from A to B GPUs, doubling; default: %(default)s"
    )
    shared_arguments.without_run(parser)
    parser.add_argument("--svg", metavar="FILE", help="write the plot as SVG into FILE")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.predict.answers.sweep import sweep

    first, last = _range(args.gpus)
    with busy("computing"):
        found = sweep(*shared_arguments.links_and_device(args), args.local_batch, first, last)
    if args.svg and found.curve:
        shared_arguments.write_svg(args.svg, found.curve.as_svg())
    print(found.text(as_json=args.json))
    return DONE


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\.\.(\d+)", text, re.ASCII)
    first, last = map(int, match.groups()) if match and len(text) < 20 else (0, 0)
    if not 2 <= first <= last <= MOST_GPUS:
        raise UserError(f"{text}: write A..B with 2 <= A <= B <= {MOST_GPUS}, as in 4..100000")
    return first, last
