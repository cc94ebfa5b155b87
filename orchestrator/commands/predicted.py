"""A run's YAML as the model takes it: ranks, grid, batch, links and what computes."""

from __future__ import annotations

import argparse
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.planning import plan
from orchestrator.predict.compute import Device, device, device_for, measured
from orchestrator.predict.forecast import Asked, Forecast, forecast
from orchestrator.predict.networks import network, with_ranks_per_node
from orchestrator.predict.workload import workload


def forecast_of(args: argparse.Namespace) -> Forecast:
    """The run that was asked for, on its site's links and GPUs unless others were named."""
    planned = plan(args.file, site=args.site, settings=args.settings)
    grid, train = planned.grid, planned.run.train
    name = args.network or Path(args.site or planned.run.site).stem
    links = with_ranks_per_node(network(name), planned.ranks_per_node)
    trained = workload(args.workload or train.model)
    computing = _device(args, trained.name, planned.site.node.architecture, train.batch / planned.ranks)
    return forecast(
        Asked(planned.run.nodes, planned.ranks, (grid.x, grid.y), train.batch, train.epochs, trained, computing, links)
    )


def _device(args: argparse.Namespace, workload: str, architecture: str | None, local_batch: float) -> Device:
    if args.images_per_s is not None:
        if not 0 < args.images_per_s < float("inf"):
            raise UserError(f"--images-per-s {args.images_per_s}: must be above 0")
        return measured("--images-per-s", local_batch, local_batch / args.images_per_s, 0.0)
    if workload != "resnet50":
        raise UserError(
            f"nobody published how fast {workload} runs: give --images-per-s, the rate of one rank as measured, "
            "or --workload resnet50 to predict that network on the same nodes"
        )
    name = args.gpu or device_for(architecture)
    if name is None:
        raise UserError(f"no rate is known for the site's GPUs ({architecture or 'no architecture'}): give --gpu NAME")
    return device(name)
