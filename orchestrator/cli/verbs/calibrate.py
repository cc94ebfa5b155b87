"""
A job on the run's nodes measures the compute time of a rank, the intra-node and inter-node links, and the library's own
all-reduce against the torus. The values are written beside the site's file, where plan and predict read them.

examples:
  torusrun calibrate examples/digits.yaml
  torusrun calibrate run.yaml --from last
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.run.folder.run_folder import RunFolder


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    parser.add_argument(
        "--from", metavar="RUN", dest="measured", help="use this finished measuring run instead of a new one"
    )


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.predict.measurements import keep, words

    folder = _measured(args)
    place, measured = keep(args.file, folder, site=args.site, settings=args.settings)
    return shared_arguments.show(args, {"kept": str(place), **measured.as_json()}, words(place, measured))


def _measured(args: argparse.Namespace) -> RunFolder:
    """The folder of a COMPLETED measuring run: that of --from, or of a new run, after waiting for it."""
    from torusrun.orchestrator.cli.api import State, open_run, plan, submit
    from torusrun.orchestrator.show.screen import printed

    if plan(args.file, site=args.site, settings=args.settings).run.command:
        raise UserError("a command is measured by its finished runs, which predict reads: submit it at some sizes")
    settings = [*args.settings, "program=measure"]
    shared_arguments.here(plan(args.file, site=args.site, settings=settings).site, "calibrate")
    run = open_run(args.measured) if args.measured else submit(args.file, site=args.site, settings=settings)
    if run.plan.run.program != "measure":
        raise UserError(f"{run.id} is not a measuring run; submit one with --set program=measure")
    (view,) = printed.show([run.folder])
    if view.state is not State.COMPLETED:
        raise UserError(f"{run.id} is {view.state.value} ({view.reason}): nothing was measured")
    return run.folder
