"""
Runs that were selected by a pattern or an option, and not named, are shown first; those that are COMPLETED or still at
work are left out.

examples:
  torusrun resume last
  torusrun resume last --time 2h --wait
  torusrun resume SWEEP          (those of its members that failed)
  torusrun resume last --nodes 2 --grid 4x2 --exclude node7
  torusrun resume --state failed,node_fail
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import result
from torusrun.orchestrator.cli.verbs import chosen, shared_arguments, watch
from torusrun.training.counted import counted

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handle import Run
    from torusrun.orchestrator.run.state.view import View


def arguments(parser: argparse.ArgumentParser) -> None:
    chosen.arguments(parser, "resume")
    parser.add_argument("--time", metavar="DURATION", help="a new time limit, as in 2h")
    parser.add_argument("--mem", metavar="SIZE", help="a new memory of a node, as in 200G")
    parser.add_argument("--nodes", metavar="N", type=int, help="a new number of nodes")
    parser.add_argument(
        "--grid", metavar="GRID", help="a new grid of ranks, as in 4x2 or auto; a grid of another size needs --nodes"
    )
    exclude = "avoid this host, in later attempts too; a list as in n[3-5]"
    shared_arguments.repeated(parser, "--exclude", "HOST", exclude)
    force = "resume even if the newest attempt may still run; that attempt ends when the new one begins"
    parser.add_argument("--force", action="store_true", help=force)
    parser.add_argument("--new-image", action="store_true", help="take the image that the run's `image` names now")
    shared_arguments.held(parser)
    parser.add_argument("--wait", action="store_true", help="follow the run to its end and exit with its outcome")


def _resume_sweep(args: argparse.Namespace) -> int:
    """Resume the members of a sweep that failed, together."""
    from torusrun.orchestrator.cli.api import open_sweep

    if args.held or args.new_image:
        raise UserError("members of a sweep are resumed with --in or --new-image one by one: name one of them")
    sweep = open_sweep(args.run_ids[0])
    resumed = sweep.resume(**_changes(args))
    members = f"{counted(len(resumed), 'member')} of {sweep.id} resumed"
    result("\n".join(run.id for run in resumed), f"{members}: {', '.join(run.id for run in resumed)}")
    return watch.follow_to_end(sweep) if args.wait else DONE


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.handle import Run
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.folder.sweep_folder import members_of

    if len(args.run_ids) == 1 and members_of(args.run_ids[0], index.runs()):
        return _resume_sweep(args)
    runs = [Run(folder) for folder in chosen.agreed_runs(args, "resume", _may, "none of which has ended early")]
    if len(runs) > 1 and args.wait:
        raise UserError("--wait follows one run: leave it out, and use `torusrun watch`")
    if len(runs) != 1:
        return chosen.complained(chosen.refused(lambda run: _resume(run, args), runs))
    _resume(runs[0], args)
    return watch.follow_to_end(runs[0]) if args.wait else DONE


def _may(view: View) -> bool:
    from torusrun.orchestrator.base.states import State

    return view.state.over and view.state is not State.COMPLETED


def _resume(run: Run, args: argparse.Namespace) -> None:
    checkpoint = run.resume(**_changes(args), new_image=args.new_image, held=args.held)
    origin = checkpoint.name if checkpoint else "the beginning: it has no complete checkpoint"
    result(run.id, f"{run.id} resumes from {origin}")


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    """The changes that a run and a sweep can be resumed with."""
    options = {"time": args.time, "nodes": args.nodes, "grid": args.grid, "exclude": args.exclude}
    return {**options, "memory": args.mem, "force": args.force}
