"""
A job on the run's nodes measures the compute time of a rank, and the intra-node and inter-node links. The fitted values
are written beside the site's file, where plan and predict read them.
A command runs for some of its reported steps on two numbers of nodes, or of ranks of one node, one after the other.

examples:
  torusrun calibrate examples/digits.yaml
  torusrun calibrate program.yaml --nodes 2,8 --steps 200
  torusrun calibrate run.yaml --from last
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, TorusrunError, UserError
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.run.plan.plan import Plan
    from torusrun.orchestrator.run.state.view import View

STEPS, FEWEST_STEPS, MOST_STEPS = 50, 10, 1_000_000
LEAST_S = 5.0  # of steps: those of a log are read about once a second


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    parser.add_argument(
        "--from", metavar="RUN", dest="measured", help="use this finished measuring run instead of a new one"
    )
    parser.add_argument("--nodes", metavar="N,N", help="of a command: the numbers of nodes; default: half, and all")
    parser.add_argument("--steps", metavar="N", type=int, help=f"of a command: steps to report; default: {STEPS}")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.api import plan
    from torusrun.orchestrator.predict.measurements import keep, words

    if (planned := plan(args.file, site=args.site, settings=args.settings)).run.command:
        return _command(args, planned)
    if args.nodes or args.steps is not None:
        raise UserError("--nodes and --steps are for a command: a training is measured on its own nodes")
    folder = _measured(args)
    place, found = keep(args.file, folder, site=args.site, settings=args.settings)
    print(
        json.dumps({"schema": 1, "kept": str(place), **found.as_json()}, indent=1) if args.json else words(place, found)
    )
    return DONE


def _command(args: argparse.Namespace, planned: Plan) -> int:
    """Run a command at some sizes for some steps each, and print the forecast of its finished runs."""
    from torusrun.orchestrator.cli.api import plan, submit
    from torusrun.orchestrator.predict.words import program
    from torusrun.orchestrator.run.plan.command_runs import command_forecast

    steps = STEPS if args.steps is None else args.steps
    if not FEWEST_STEPS <= steps <= MOST_STEPS:
        raise UserError(f"--steps {steps}: must be from {FEWEST_STEPS} to {MOST_STEPS:,}")
    shared_arguments.here(planned.site, "calibrate")
    if args.measured:
        raise UserError("--from is for a training: all finished runs of a command count, and predict reads them")
    sizes = [[*args.settings, *size] for size in _sizes(args.nodes, planned)]
    for settings in sizes:  # a mistake in the last one is said before the first one runs
        plan(args.file, site=args.site, settings=settings)
    for settings in sizes:
        _reported(submit(args.file, site=args.site, settings=settings).folder, steps)
    print(program(command_forecast(planned)).text(as_json=args.json))
    return DONE


def _sizes(nodes: str | None, planned: Plan) -> list[list[str]]:
    """The settings of each size: numbers of nodes, or of ranks of one node; the second is the run's own."""
    grid = ["grid=auto"] if planned.run.grid else []
    if nodes is None:
        key = "nodes" if planned.run.nodes > 1 else "ranks_per_node"
        many = planned.run.nodes if planned.run.nodes > 1 else planned.ranks_per_node
        return [[*grid, f"{key}={many // 2}"], []] if many > 1 else [[]]
    try:
        named = sorted({int(number) for number in nodes.split(",")})
    except ValueError:
        named = []
    if not named or named[0] < 1:
        raise UserError(f"--nodes {nodes}: write numbers of nodes, as in 2,8")
    return [[*grid, f"nodes={number}", f"ranks_per_node={planned.ranks_per_node}"] for number in named]


def _reported(folder: RunFolder, steps: int) -> None:
    """Wait until a run has reported so many steps, in some seconds, and cancel it. Raises UserError if it fails before.

    The run is cancelled if the wait is interrupted, too.
    """
    from torusrun.orchestrator.base.states import State
    from torusrun.orchestrator.run.attempts.cancel import cancel
    from torusrun.orchestrator.show.screen import printed

    reported: list[tuple[int, float]] = []  # the first step with its time, and that with which it is enough

    def seen(view: View) -> None:
        if view.step is None or view.state.over or len(reported) > 1:
            return
        now = view.step, time.monotonic()
        if not reported or (now[0] - reported[0][0] >= steps and now[1] - reported[0][1] >= LEAST_S):
            reported.append(now)
        if len(reported) > 1:
            with contextlib.suppress(UserError):  # it has ended meanwhile
                cancel(folder)

    try:
        (view,) = printed.show([folder], seen)
    except BaseException:
        with contextlib.suppress(TorusrunError):
            cancel(folder)
            say(f"{folder.run_id} is cancelled")
        raise
    if view.state is not State.COMPLETED and len(reported) < 2:
        raise UserError(f"{view.run} is {view.state.value} ({view.reason}): its steps were not measured")


def _measured(args: argparse.Namespace) -> RunFolder:
    """The folder of a COMPLETED measuring run: that of --from, or of a new run, after waiting for it."""
    from torusrun.orchestrator.cli.api import State, open_run, plan, submit
    from torusrun.orchestrator.show.screen import printed

    settings = [*args.settings, "program=measure"]
    shared_arguments.here(plan(args.file, site=args.site, settings=settings).site, "calibrate")
    run = open_run(args.measured) if args.measured else submit(args.file, site=args.site, settings=settings)
    if run.plan.run.program != "measure":
        raise UserError(f"{run.id} is not a measuring run; submit one with --set program=measure")
    (view,) = printed.show([run.folder])
    if view.state is not State.COMPLETED:
        raise UserError(f"{run.id} is {view.state.value} ({view.reason}): nothing was measured")
    return run.folder
