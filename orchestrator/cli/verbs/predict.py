r"""
examples:
  torusrun calibrate examples/digits.yaml && torusrun predict examples/digits.yaml
  torusrun predict examples/digits.yaml --site slurm-v100 --set nodes=16 --set grid=8x8 --set train.batch=2048 \
    --workload resnet50
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.cli.verbs import shared_arguments

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
        "--images-per-s", metavar="RATE", type=float, help="measured images/s of one rank, instead of --gpu"
    )
    shared_arguments.moved(parser, MOVED)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.planning.forecast import Otherwise, forecast_of, forecasts_of_stretches, named_hosts
    from torusrun.orchestrator.planning.plan import plan
    from torusrun.orchestrator.report.prediction.run import run

    most = shared_arguments.MOST_IMAGES
    if args.images_per_s is not None and not 0 < args.images_per_s <= most:
        raise UserError(f"--images-per-s: must be above 0 and at most {most}")
    with busy("computing"):
        planned = plan(args.file, site=args.site, settings=args.settings)
        hosts = named_hosts(planned, shared_arguments.hosts(args.hosts)) if args.hosts else None
        other = Otherwise(args.network, args.gpu, args.workload, args.images_per_s)
        attempts = forecasts_of_stretches(planned, other)
        found = run(forecast_of(planned, hosts, other), attempts)
    print(found.text(as_json=args.json))
    return DONE
