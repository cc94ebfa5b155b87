"""
examples:
  torusrun submit examples/digits.yaml --wait
  torusrun submit examples/digits.yaml --site slurm --set nodes=4 --set grid=4x4
  torusrun submit examples/digits.yaml --dry-run
  torusrun submit examples/digits.yaml --print-script > job.sh
  torusrun submit run.yaml --site slurm --dry-run --ask
  torusrun submit examples/digits.yaml --after last
  torusrun submit evaluate.yaml --after-any last
  torusrun submit run.yaml --in last
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from orchestrator.base.errors import DONE, UserError
from orchestrator.base.process import NoAnswer
from orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from orchestrator.runs.plan.plan import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    parser.add_argument(
        "--after", metavar="RUN", action="append", default=[], help="begin once this run is COMPLETED; may be repeated"
    )
    parser.add_argument(
        "--after-any",
        metavar="RUN",
        action="append",
        default=[],
        help="begin once this run has ended in any state; may be repeated",
    )
    shared_arguments.held(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="follow the run to its end and exit with its outcome")
    how.add_argument(
        "--dry-run",
        action="store_true",
        help="print the job script and the command of every rank; write and submit nothing",
    )
    how.add_argument("--print-script", action="store_true", help="print the job script alone; write and submit nothing")
    parser.add_argument(
        "--ask", action="store_true", help="with --dry-run: ask Slurm or Grid Engine as well whether the job could run"
    )
    parser.add_argument("--json", action="store_true", help="with --dry-run: as JSON")


def run(args: argparse.Namespace) -> int:
    if (args.ask or args.json) and not args.dry_run:
        raise UserError(f"{'--ask' if args.ask else '--json'} goes with --dry-run: add it, or leave this out")
    shows = args.dry_run or args.print_script
    if shows and args.held:
        raise UserError("--in submits nothing to a scheduler: leave out --dry-run and --print-script")
    from orchestrator.cli.api import plan, submit
    from orchestrator.runs.plan.notes import notes

    later = bool(args.after or args.after_any or args.held)
    planned = plan(args.file, site=args.site, settings=args.settings, later=later)
    if shows:
        return _show_there(args, planned) if planned.site.host else _dry_run(args)
    for note in notes(planned):
        print(f"torusrun: note: {note}", file=sys.stderr)
    try:
        submitted = submit(
            args.file, site=args.site, settings=args.settings, after=args.after, after_any=args.after_any,
            held=args.held, planned=planned,
        )  # fmt: skip
    except NoAnswer:  # the run stays, and its user needs the id to query it
        print(planned.run_id, flush=True)
        raise
    print(submitted.id, flush=True)
    if not args.wait:
        return DONE
    from orchestrator.cli.verbs.watch import follow_to_end

    return follow_to_end(submitted)


def _show_there(args: argparse.Namespace, planned: Plan) -> int:
    """Print the dry run that the login node of the run's site makes."""
    from orchestrator.remote import of_file, remote_runs
    from orchestrator.remote.links.host import of

    flags = {"dry-run": args.dry_run, "print-script": args.print_script, "ask": args.ask, "json": args.json}
    options = [f"--{name}" for name, given in flags.items() if given]
    if host := of(planned.site):
        options += [f"--after={remote_runs.on(host, word)}" for word in args.after]
        options += [f"--after-any={remote_runs.on(host, word)}" for word in args.after_any]
    return of_file.run("submit", planned, args.file, options, site=args.site, settings=args.settings)


def _dry_run(args: argparse.Namespace) -> int:
    import json

    from orchestrator.base import private
    from orchestrator.cli.api import dry_run
    from orchestrator.cli.dryrun.text import as_json, text
    from orchestrator.schedulers import client

    shown = dry_run(args.file, site=args.site, settings=args.settings, after=args.after, after_any=args.after_any)
    if args.print_script:
        print(shown.script, end="")
        return DONE
    answer = client.of(shown.plan.site).ask(shown.script, shown.request) if args.ask else None
    if args.json:
        print(json.dumps(as_json(shown, answer), indent=1))
    else:
        print(private.plain(text(shown, answer)), end="")
    return DONE
