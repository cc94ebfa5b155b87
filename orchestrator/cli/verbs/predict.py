r"""
examples:
  torusrun calibrate examples/digits.yaml && torusrun predict examples/digits.yaml
  torusrun predict examples/digits.yaml --site slurm-v100 --set nodes=16 --set grid=8x8 --set train.batch=2048 \
    --workload resnet50
  torusrun predict --published
  torusrun predict --gpus 4..100000 --svg sweep.svg
  torusrun predict --grids
"""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING

from orchestrator.base.errors import DONE, UserError
from orchestrator.base.terminal.remarks import busy
from orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from orchestrator.report.prediction.predicted import Predicted

SCHEMA = 1
MOST_GPUS = 10_000_000
MOST_IMAGES = 1_000_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser, "?")
    parser.add_argument("--published", action="store_true", help="compare the model with published records")
    parser.add_argument("--gpus", metavar="A..B", help="compare all-reduce schemes from A to B GPUs, doubling")
    parser.add_argument("--grids", action="store_true", help="compare the best grids with those of the record runs")
    shared_arguments.hosts_file(parser, "with RUN.yaml: place the ranks on these hosts")
    parser.add_argument(
        "--network", metavar="NAME", help="links: a name, or a file that calibrate printed; default: the site's"
    )
    parser.add_argument("--gpu", metavar="NAME", help="GPU model; default: from the site's architecture")
    parser.add_argument("--workload", metavar="NAME", help="a built-in network; default: the run's model")
    parser.add_argument(
        "--images-per-s", metavar="RATE", type=float, help="measured images/s of one rank, instead of --gpu"
    )
    parser.add_argument(
        "--local-batch",
        metavar="N",
        type=int,
        default=32,
        help="images per GPU, with --gpus and --grids; default: %(default)s",
    )
    parser.add_argument("--svg", metavar="FILE", help="with --gpus: write the plot as SVG into FILE")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    ways = [args.file is not None, args.published, args.gpus is not None, args.grids]
    if sum(ways) != 1:
        raise UserError("give exactly one of RUN.yaml, --published, --gpus A..B and --grids")
    if not 1 <= args.local_batch <= MOST_IMAGES:
        raise UserError(f"--local-batch: must be from 1 to {MOST_IMAGES}")
    if args.images_per_s is not None and not 0 < args.images_per_s <= MOST_IMAGES:
        raise UserError(f"--images-per-s: must be above 0 and at most {MOST_IMAGES}")
    if args.svg and args.gpus is None:
        raise UserError("--svg needs --gpus A..B")
    with busy("computing"):
        found = _asked(args)
    print(json.dumps({"schema": SCHEMA, **found.record}, indent=1) if args.json else "\n".join(found.lines))
    return DONE


def _asked(args: argparse.Namespace) -> Predicted:
    if args.file is not None:
        return _run(args)
    if args.published:
        from orchestrator.report.prediction.published import published

        return published()
    from orchestrator.network.prediction.compute import device
    from orchestrator.network.prediction.networks import network
    from orchestrator.report.prediction.grids import grids
    from orchestrator.report.prediction.sweep import sweep

    links, computing = network(args.network or "abci-v"), device(args.gpu or "v100-16gb")
    if args.grids:
        return grids(links, computing, args.local_batch)
    found = sweep(links, computing, args.local_batch, *_range(args.gpus))
    if args.svg and found.curve:
        shared_arguments.write_svg(args.svg, found.curve.as_svg())
    return found


def _run(args: argparse.Namespace) -> Predicted:
    from orchestrator.report.prediction.run import run
    from orchestrator.runs.plan.auto_grid import with_expected_grid
    from orchestrator.runs.plan.forecast import Otherwise, forecast_of, forecasts_of_stretches, stood
    from orchestrator.runs.plan.plan import plan

    planned, stand = plan(args.file, site=args.site, settings=args.settings), None
    if args.hosts:
        planned, stand = stood(planned, shared_arguments.hosts(args.hosts), args.workload)
    other = Otherwise(args.network, args.gpu, args.workload, args.images_per_s)
    attempts = forecasts_of_stretches(planned, other)
    return run(forecast_of(with_expected_grid(planned, args.workload), stand, other), attempts)


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\.\.(\d+)", text, re.ASCII)
    first, last = map(int, match.groups()) if match and len(text) < 20 else (0, 0)
    if not 2 <= first <= last <= MOST_GPUS:
        raise UserError(f"--gpus {text}: write A..B with 2 <= A <= B <= {MOST_GPUS}, as in 4..100000")
    return first, last
