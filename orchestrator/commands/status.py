"""
AGE is the time since the newest attempt was submitted, of a run that is not over.
ETA is the time to the last step, at the pace of the attempt's newest steps.
A narrow terminal leaves out LOSS/ACC, SITE, AGE, ETA and STEP, in this order.
Pipes and --json get every column, and --json every run.

examples:
  torusrun status
  torusrun status 'digits*' --state running,pending
  torusrun status --site abci-v --since 2h
  torusrun status last --json
"""

from __future__ import annotations

import argparse
import json
import sys

from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_ids",
        metavar="RUN",
        nargs="*",
        help="runs, or patterns as in 'digits*'; default: those that are not over, and the newest 20 others",
    )
    parser.add_argument("--state", metavar="STATES", help="only runs in these states, as in running,failed")
    parser.add_argument("--site", metavar="NAME", help="only runs of this site")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only runs submitted since: 2h or 3d ago, 2026-11-01, or 2026-11-01T14:30",
    )
    parser.add_argument("--all", "-a", action="store_true", help="all runs, newest last")
    parser.add_argument("--long", "-l", action="store_true", help="a second line: attempt, job, time, grid, hosts")
    parser.add_argument("--json", action="store_true", help="as JSON, with all that is known")


def run(args: argparse.Namespace) -> int:
    from orchestrator.remote import known as remote
    from orchestrator.runs import index
    from orchestrator.watch import selection
    from orchestrator.watch.poll import views

    chosen = selection.Selection(
        selection.states(args.state) if args.state is not None else frozenset(),
        args.site or "",
        selection.since(args.since) if args.since is not None else None,
    )
    words, away = remote.split(args.run_ids)
    known = selection.named(words) if words or not args.run_ids else []
    all_asked = args.all or args.json or args.run_ids or chosen != selection.Selection()
    runs = selection.newest(known) if not all_asked else known if words else index.there(known)
    found = [view for view in views(runs, keep=chosen.asks_about) if chosen.shows(view)]
    if away:
        from orchestrator.remote import status

        chosen_there = away if all_asked else remote.newest(away, selection.SHOWN_OVER)
        asked = [run for run in chosen_there if chosen.asks_about(run)]
        found += [view for view in status.views(asked, named=bool(args.run_ids)) if chosen.shows(view)]
        found.sort(key=lambda view: view.submitted_s or 0.0)
    if args.json:
        print(json.dumps({"schema": 1, "runs": [view.as_json() for view in found]}, indent=1))
    elif found:
        from orchestrator.terminal import output
        from orchestrator.watch import listing

        print("\n".join(listing.listing(found, output.width(sys.stdout), long=args.long)))
    else:
        print("no run matches" if runs or away else "no runs yet; `torusrun submit RUN.yaml` makes one")
    if not all_asked and len(runs) < len(known):
        print(f"{len(known) - len(runs)} older runs are not shown: name them, or ask for --all", file=sys.stderr)
    return DONE
