r"""
examples:
  torusrun calibrate examples/digits.yaml && torusrun predict examples/digits.yaml
  torusrun predict examples/digits.yaml --site slurm-v100 --set nodes=16 --set grid=8x8 --set train.batch=2048 \
    --workload resnet50
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.predict.answers.predicted import Predicted
    from torusrun.orchestrator.run.plan.plan import Plan

MOVED = {
    "--published": "torusrun records",
    "--gpus": "torusrun scale A..B",
    "--svg": "torusrun scale A..B --svg FILE",
    "--grids": "torusrun grids",
    "--score": "torusrun score",
    "--local-batch": "torusrun scale --local-batch N",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    shared_arguments.hosts_file(parser, "place the ranks on these hosts")
    parser.add_argument(
        "--network", metavar="NAME", help="links: a name, or a file that calibrate printed; default: the site's"
    )
    parser.add_argument("--gpu", metavar="NAME", help="GPU model; default: from the site's architecture")
    parser.add_argument("--workload", metavar="NAME", help="a built-in network; default: the run's model")
    parser.add_argument(
        "--images-per-s",
        metavar="RATE[@BATCH]",
        help="measured images/s of one rank, at its BATCH in a step, as in 2470@256; replaces --gpu",
    )
    shared_arguments.moved(parser, MOVED)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.predict.answers.run import run
    from torusrun.orchestrator.predict.forecast import forecast_of, forecasts_of_stretches, named_hosts
    from torusrun.orchestrator.predict.rates import Otherwise
    from torusrun.orchestrator.run.plan.plan import plan

    with busy("computing"):
        planned = plan(args.file, site=args.site, settings=args.settings)
        if planned.run.command:
            print(_of_command(args, planned).text(as_json=args.json))
            return DONE
        hosts = named_hosts(planned, shared_arguments.hosts(args.hosts)) if args.hosts else None
        other = Otherwise(args.network, args.gpu, args.workload, *_rate(args.images_per_s))
        attempts = forecasts_of_stretches(planned, other)
        found = run(forecast_of(planned, hosts, other), attempts)
    print(found.text(as_json=args.json))
    return DONE


def _of_command(args: argparse.Namespace, planned: Plan) -> Predicted:
    """The forecast of a command by its finished runs. Raises UserError without any, or for an option of trainings."""
    from torusrun.orchestrator.predict.answers.program import program
    from torusrun.orchestrator.predict.command_runs import command_forecast

    options = {"--network": args.network, "--gpu": args.gpu, "--workload": args.workload, "--hosts": args.hosts}
    if given := [name for name, value in {**options, "--images-per-s": args.images_per_s}.items() if value]:
        raise UserError(f"{', '.join(given)}: torusrun does not know what a command computes: leave it out")
    return program(command_forecast(planned))


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
