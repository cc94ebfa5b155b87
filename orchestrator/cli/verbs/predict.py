r"""
examples:
  torusrun calibrate examples/digits.yaml && torusrun predict examples/digits.yaml
  torusrun predict examples/digits.yaml --site slurm-v100 --set nodes=16 --set grid=8x8 --set train.batch=2048 \
    --workload resnet50
  torusrun predict examples/digits.yaml --grids
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.predict.words import Predicted
    from torusrun.orchestrator.run.plan.plan import Plan
    from torusrun.orchestrator.run.plan.rates import Otherwise


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    shared_arguments.hosts_file(parser, "place the ranks on these hosts")
    parser.add_argument("--network", metavar="NAME", help="links of a known network; default: the site's")
    parser.add_argument("--gpu", metavar="NAME", help="GPU model; default: from the site's architecture")
    parser.add_argument("--workload", metavar="NAME", help="a built-in network; default: the run's model")
    rate = "measured images/s of one rank, at its BATCH in a step, as in 2470@256; replaces --gpu"
    parser.add_argument("--images-per-s", metavar="RATE[@BATCH]", help=rate)
    several = parser.add_mutually_exclusive_group()
    several.add_argument(
        "--nodes", metavar="N,M", help="a table of the run on these numbers of nodes, each with its best grid"
    )
    several.add_argument("--grids", action="store_true", help="a table of the run on each grid of its ranks")


def run(args: argparse.Namespace) -> int:
    with busy("computing"):
        predicted = _predicted(args)
    return shared_arguments.show(args, predicted.record, "\n".join(predicted.lines))


def _predicted(args: argparse.Namespace) -> Predicted:
    from torusrun.orchestrator.predict.words import run
    from torusrun.orchestrator.run.plan.forecast import forecast_of, named_hosts
    from torusrun.orchestrator.run.plan.plan import plan

    any_grid = ["grid=auto"] if args.nodes or args.grids else []
    planned = plan(args.file, site=args.site, settings=[*args.settings, *any_grid])
    if planned.run.command:
        return _of_command(args, planned)
    if any_grid:
        return _compared(args, planned)
    hosts = named_hosts(planned, shared_arguments.hosts(args.hosts)) if args.hosts else None
    return run(forecast_of(planned, hosts, _otherwise(args)))


def _otherwise(args: argparse.Namespace) -> Otherwise:
    from torusrun.orchestrator.run.plan.rates import Otherwise

    return Otherwise(args.network, args.gpu, args.workload, *_rate(args.images_per_s))


def _compared(args: argparse.Namespace, planned: Plan) -> Predicted:
    """The forecasts of --nodes or --grids. Raises UserError for a size that the run cannot have."""
    from torusrun.orchestrator.place.cost.shapes import divisors
    from torusrun.orchestrator.predict.words import compared
    from torusrun.orchestrator.run.plan.forecast import forecast_of
    from torusrun.orchestrator.run.plan.plan import plan

    if args.hosts:
        raise UserError("--hosts: one run alone is placed on hosts: leave out --nodes and --grids")
    if args.nodes:
        if not re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", args.nodes, re.ASCII):
            raise UserError(f"--nodes {args.nodes}: write numbers between commas, as in 4,8,16")
        changes = [[f"nodes={nodes}", "grid=auto"] for nodes in args.nodes.split(",")]
    else:
        changes = [[f"nodes={planned.run.nodes}", f"grid={x}x{planned.ranks // x}"] for x in divisors(planned.ranks)]
    plans = [plan(args.file, site=args.site, settings=[*args.settings, *change]) for change in changes]
    return compared([forecast_of(each, None, _otherwise(args)) for each in plans])


def _of_command(args: argparse.Namespace, planned: Plan) -> Predicted:
    """The forecast of a command by its finished runs. Raises UserError without any, or for an option of trainings."""
    from torusrun.orchestrator.predict.words import program
    from torusrun.orchestrator.run.plan.command_runs import command_forecast

    options = {"--network": args.network, "--gpu": args.gpu, "--workload": args.workload, "--hosts": args.hosts}
    options |= {"--nodes": args.nodes, "--grids": args.grids}
    if given := [name for name, value in {**options, "--images-per-s": args.images_per_s}.items() if value]:
        raise UserError(f"{', '.join(given)}: torusrun does not know what a command computes: leave it out")
    return program(command_forecast(planned), planned)


def _rate(text: str | None) -> tuple[float | None, float | None]:
    """The rate in RATE[@BATCH] and the batch, None if it is not written. Raises UserError."""
    if text is None:
        return None, None
    most = shared_arguments.MOST_IMAGES
    rate, at, batch = text.partition("@")
    try:
        numbers = float(rate), float(batch) if at else None
    except ValueError:
        raise UserError(f"--images-per-s {text}: write RATE, or RATE@BATCH as in 2470@256") from None
    if not all(number is None or 1 / most <= number <= most for number in numbers):
        raise UserError(f"--images-per-s {text}: must be above 0 and at most {most}")
    return numbers
