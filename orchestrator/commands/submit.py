"""
examples:
  torusrun submit examples/digits.yaml --wait
  torusrun submit examples/digits.yaml --site slurm --set nodes=4 --set grid=4x4
  torusrun submit examples/digits.yaml --dry-run
  torusrun submit examples/digits.yaml --after last
  torusrun submit evaluate.yaml --after-any last
"""

from __future__ import annotations

import argparse

from orchestrator.commands import asked
from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_file(parser)
    parser.add_argument(
        "--after", metavar="RUN", action="append", default=[], help="begin once this run is COMPLETED; may be repeated"
    )
    parser.add_argument(
        "--after-any",
        metavar="RUN",
        action="append",
        default=[],
        help="begin once this run has ended, however; may be repeated",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="follow the run to its end and exit with its outcome")
    how.add_argument("--dry-run", action="store_true", help="print the exact job script; write and submit nothing")


def run(args: argparse.Namespace) -> int:
    if args.dry_run:
        return _dry_run(args)
    from orchestrator.api import submit

    submitted = submit(args.file, site=args.site, settings=args.settings, after=args.after, after_any=args.after_any)
    print(submitted.id, flush=True)
    if not args.wait:
        return DONE
    from orchestrator.commands.watch import follow_to_end

    return follow_to_end(submitted.folder)


def _dry_run(args: argparse.Namespace) -> int:
    from orchestrator.attempts.script import script
    from orchestrator.plans.attempt import AttemptPlan
    from orchestrator.plans.plan import plan
    from orchestrator.runs.folder import RunFolder

    planned = plan(args.file, site=args.site, settings=args.settings)
    print(script(AttemptPlan(1, planned), RunFolder(planned.folder).attempt(1)), end="")
    return DONE
