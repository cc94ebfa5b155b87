"""
AGE is the time since the newest attempt was submitted, of a run that is not over.
ETA is the time to the last step, at the pace of the attempt's newest steps.
A narrow terminal leaves out LOSS/ACC, SITE, AGE, ETA and STEP, in this order.
Pipes and --json get everything.

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
        help="runs, or patterns as in 'digits*'; default: all, newest last",
    )
    parser.add_argument("--state", metavar="STATES", help="only runs in these states, as in running,failed")
    parser.add_argument("--site", metavar="NAME", help="only runs of this site")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only runs submitted since: 2h or 3d ago, 2026-11-01, or 2026-11-01T14:30",
    )
    parser.add_argument("--long", "-l", action="store_true", help="a second line: attempt, job, time, grid, hosts")
    parser.add_argument("--json", action="store_true", help="as JSON, with all that is known")


def run(args: argparse.Namespace) -> int:
    from orchestrator.watch import selection
    from orchestrator.watch.poll import views

    chosen = selection.Selection(
        selection.states(args.state) if args.state is not None else frozenset(),
        args.site or "",
        selection.since(args.since) if args.since is not None else None,
    )
    runs = selection.named(args.run_ids)
    found = [view for view in views(runs, keep=chosen.asks_about) if chosen.shows(view)]
    if args.json:
        print(json.dumps({"schema": 1, "runs": [view.as_json() for view in found]}, indent=1))
    elif found:
        from orchestrator.watch import listing, terminal

        print("\n".join(listing.listing(found, terminal.width(sys.stdout), long=args.long)))
    else:
        print("no run matches" if runs else "no runs yet; `torusrun submit RUN.yaml` makes one")
    return DONE
