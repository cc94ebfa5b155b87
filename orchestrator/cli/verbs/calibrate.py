"""
A job on the run's nodes measures the compute time of a rank, and the intra-node and inter-node links. The fitted values
are written beside the site's file, where plan and predict read them. FILE.json holds your own measurements, as in
  {"schema": 1, "rows": [{"link": "node", "operation": "all_reduce", "ranks": 4, "bytes": 1048576, "time_s": 0.0001}]}
innermost link first. Its links are only printed, for predict --network.

examples:
  torusrun calibrate examples/digits.yaml
  torusrun calibrate run.yaml --from last
  torusrun calibrate measured.json > links.yaml && torusrun predict run.yaml --network links.yaml
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments
from torusrun.training.counted import counted

if TYPE_CHECKING:
    from torusrun.orchestrator.folder.run_folder import RunFolder


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    parser.add_argument(
        "--from", metavar="RUN", dest="measured", help="use this finished measuring run instead of a new one"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    if args.file.endswith(".json"):
        return _printed(Path(args.file), args.json)
    from torusrun.orchestrator.planning.measurements import keep, words

    folder = _measured(args)
    place, found = keep(args.file, folder, site=args.site, settings=args.settings)
    print(
        json.dumps({"schema": 1, "kept": str(place), **found.as_json()}, indent=1) if args.json else words(place, found)
    )
    return DONE


def _measured(args: argparse.Namespace) -> RunFolder:
    """The folder of a COMPLETED measuring run: that of --from, or of a new run, after waiting for it."""
    from torusrun.orchestrator.cli.api import State, open_run, plan, submit
    from torusrun.orchestrator.report.screen import live

    settings = [*args.settings, "program=measure"]
    shared_arguments.here(plan(args.file, site=args.site, settings=settings).site, "calibrate")
    run = open_run(args.measured) if args.measured else submit(args.file, site=args.site, settings=settings)
    if run.plan.run.program != "measure":
        raise UserError(f"{run.id} is not a measuring run; submit one with --set program=measure")
    view = live.show(run.folder)
    if view.state is not State.COMPLETED:
        raise UserError(f"{run.id} is {view.state.value} ({view.reason}): nothing was measured")
    return run.folder


def _printed(path: Path, as_json: bool) -> int:
    from torusrun.orchestrator.network.prediction import calibration

    try:
        found = calibration.fits(calibration.read(_read(path)))
        if not found:
            raise UserError("has no rows")
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    print(json.dumps({"schema": 1, "links": [fit.__dict__ for fit in found]}, indent=1) if as_json else _yaml(found))
    return DONE


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not JSON: {error}") from None


def _yaml(fits: list[Any]) -> str:
    """The text that predict --network reads."""
    lines = ["# fitted to measured times", "network:"]
    for fit in fits:
        lines += [
            f"  {json.dumps(fit.link)}:  # {counted(fit.rows, 'row')}, worst error {fit.worst_percent:.1f} %",
            f"    members: {fit.ranks}",
            f"    bandwidth_bytes_per_s: {1 / fit.beta_s_per_byte:.6g}",
            f"    latency_s: {fit.alpha_s:.6g}",
        ]
    return "\n".join(lines)
