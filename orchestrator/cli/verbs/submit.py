"""
examples:
  torusrun submit examples/digits.yaml --wait
  torusrun submit examples/digits.yaml --site slurm --nodes 4 --time 2h --set grid=4x4
  torusrun submit examples/digits.yaml --dry-run
  torusrun submit examples/digits.yaml --dry-run --quiet > job.sh
  torusrun submit run.yaml --site slurm --dry-run --ask
  torusrun submit examples/digits.yaml --after last
  torusrun submit evaluate.yaml --after-any last
  torusrun submit run.yaml --in last
  torusrun submit run.yaml --site soonest
  torusrun submit examples/digits.yaml --sweep train.optimizer.lr=0.05,0.1,0.2
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.terminal.remarks import is_quiet, printed, say
from torusrun.orchestrator.cli.verbs import shared_arguments
from torusrun.training.counted import counted

SOONEST = "soonest"  # in place of a site's name
MOST_NOTES = 3  # on the members of a sweep

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handle import Run, Sweep
    from torusrun.orchestrator.run.plan.plan import Plan
    from torusrun.orchestrator.run.state.awaited import Awaited
    from torusrun.orchestrator.sweeps.plans import PlannedSweep


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    shared_arguments.keys(parser)
    how(parser)


def how(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a run, or a sweep of it, is submitted."""
    shared_arguments.sweep(parser)
    after = "begin when this run is COMPLETED, or for RUN:ROLE when this role of it is ready"
    shared_arguments.repeated(parser, "--after", "RUN", after)
    shared_arguments.repeated(parser, "--after-any", "RUN", "begin when this run has ended in any state")
    shared_arguments.held(parser)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--wait", action="store_true", help="follow the run to its end and exit with its outcome")
    dry_run = "print the job script and the command of every rank (with --quiet the script alone); submit nothing"
    ways.add_argument("--dry-run", action="store_true", help=dry_run)
    ask = "with --dry-run: also ask Slurm or Grid Engine whether the job could run"
    parser.add_argument("--ask", action="store_true", help=ask)
    parser.add_argument("--json", action="store_true", help="as JSON; a submission: the id of the run")
    shared_arguments.chosen_elsewhere(parser)


def run(args: argparse.Namespace) -> int:
    if args.ask and not args.dry_run:
        raise UserError("--ask needs --dry-run: add it, or leave out --ask")
    if args.dry_run and args.held:
        raise UserError("--in submits nothing to a scheduler: leave out --dry-run")
    if args.site == SOONEST:
        _choose(args)
    from torusrun.orchestrator.keys.load import is_sweep

    if args.sweep or is_sweep(args.file, args.site, args.settings):
        return _sweep(args)
    from torusrun.orchestrator.run.plan.plan import notes, plan

    later = bool(args.after or args.after_any or args.held)
    planned = plan(args.file, site=args.site, settings=args.settings, later=later, run_id=args.id)
    if args.dry_run:
        return _dry_run(args, planned)
    for note in notes(planned) if not planned.site.host else ():  # else the login node prints them
        say(f"note: {note}")
    from torusrun.orchestrator.cli.api import submit  # imported late: a dry run does without handles of runs

    try:
        submitted = submit(
            args.file, site=args.site, settings=args.settings, after=args.after, after_any=args.after_any,
            held=args.held, planned=planned, origin=shared_arguments.origin(args),
        )  # fmt: skip
    except NoAnswer:  # the run stays, and its user needs the id to query it
        printed(planned.run_id)
        raise
    printed(submitted.id)
    return _followed(args, submitted)


def _choose(args: argparse.Namespace) -> None:
    """Name the site and the queue where the run starts first."""
    from torusrun.orchestrator.cli.verbs.where import soonest

    best = soonest(args.file, args.settings)
    args.site = best.site
    args.settings = [*args.settings, *([f"--queue={best.queue}"] if best.queue else [])]
    say(f"note: the run goes to {best.site}{f', queue {best.queue}' if best.queue else ''}: {best.start}")


def _sweep(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.api import plan_sweep, sweep
    from torusrun.orchestrator.run.plan.plan import notes

    if args.held:
        raise UserError("--in starts one attempt at a time in a held allocation: leave out --in or the sweep")
    if args.ask:
        raise UserError("--ask asks about one job: leave out --ask or the sweep")
    options = {"site": args.site, "settings": args.settings, "values": args.sweep}
    planned = plan_sweep(args.file, later=bool(args.after or args.after_any), sweep_id=args.id, **options)
    if args.dry_run:
        return _dry_run_of_sweep(args, planned)
    texts = list(dict.fromkeys(note for member in planned.members for note in notes(member.plan)))
    more = [f"and {counted(len(texts) - MOST_NOTES, 'more note')} on other members"] if texts[MOST_NOTES:] else []
    for note in [*texts[:MOST_NOTES], *more] if not planned.site.host else ():
        say(f"note: {note}")
    try:
        how = {"after": args.after, "after_any": args.after_any, "origin": shared_arguments.origin(args)}
        submitted = sweep(args.file, planned=planned, **how, **options)
    except NoAnswer:
        printed(planned.folder.sweep_id)
        raise
    printed(submitted.id)
    return _followed(args, submitted)


def _followed(args: argparse.Namespace, submitted: Run | Sweep) -> int:
    """With --wait, follow what was submitted to its end; returns the exit code."""
    if not args.wait:
        return DONE
    from torusrun.orchestrator.cli.verbs.watch import follow_to_end

    return follow_to_end(submitted)


def _dry_run_of_sweep(args: argparse.Namespace, planned: PlannedSweep) -> int:
    """Print the members of a sweep, and the script and the command for each of its arrays; or the scripts alone."""
    if planned.site.host:
        from torusrun.orchestrator.sweeps.plans import one_of

        return _dry_run_on_login_node(args, one_of(planned))
    from torusrun.orchestrator.cli.dry_run_of_sweep import as_json, scripts, text

    awaited = (planned, args.after, args.after_any)
    return _show(args, lambda: as_json(*awaited), lambda: scripts(*awaited), lambda: text(*awaited))


def _dry_run(args: argparse.Namespace, planned: Plan) -> int:
    """Print the job of a run, and the programs of its ranks; or the script alone."""
    if planned.site.host:
        return _dry_run_on_login_node(args, planned)
    from torusrun.orchestrator.cli.dry_run import as_json, dry_run, text
    from torusrun.orchestrator.schedulers import client

    shown = dry_run(planned, _awaited(args, planned) if args.after or args.after_any else ())
    answer = client.of(shown.plan.site).ask(shown.script, shown.request) if args.ask else None
    return _show(args, lambda: as_json(shown, answer), lambda: shown.script, lambda: text(shown, answer))


def _awaited(args: argparse.Namespace, planned: Plan) -> list[Awaited]:
    """The jobs for which the run waits."""
    from torusrun.orchestrator.run.state.awaited import to_wait_for

    return to_wait_for(planned.site.scheduler, args.after, args.after_any)


def _show(
    args: argparse.Namespace, record: Callable[[], dict[str, Any]], script: Callable[[], str], text: Callable[[], str]
) -> int:
    """Print a dry run: its record with --json, its script with --quiet, otherwise its text."""
    import json

    from torusrun.orchestrator.base import private

    if args.json:
        print(json.dumps(record(), indent=1))
    else:
        print(script() if is_quiet() else private.plain(text()), end="")
    return DONE


def _dry_run_on_login_node(args: argparse.Namespace, planned: Plan) -> int:
    """Print the dry run of a run or a sweep that the login node of its site makes."""
    from torusrun.orchestrator.cli.elsewhere import shown
    from torusrun.orchestrator.remote import of_file, remote_runs
    from torusrun.orchestrator.remote.host import of

    flags = {"dry-run": True, "ask": args.ask, "json": args.json}
    options = [f"--{name}" for name, given in flags.items() if given]
    options += remote_runs.awaited_on(of(planned.site), args.after, args.after_any)
    options += [f"--sweep={value}" for value in args.sweep]
    return shown(of_file.run("submit", planned, args.file, options, site=args.site, settings=args.settings))
