"""
The forecast is that of `torusrun predict` at the submission of the run. The error is relative to it: +10 % took
longer. P95 and WORST have no sign. INSIDE counts the runs within the 90 % interval of their forecast. A part that was
not measured is left out.

examples:
  torusrun score
  torusrun score --site abci-v --since 30d
  torusrun score last
"""

from __future__ import annotations

import argparse
import json

from torusrun.orchestrator.base.errors import DONE

SCHEMA = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_ids", metavar="RUN", nargs="*", help="show the parts of these runs, or of those that match 'digits*'"
    )
    parser.add_argument("--site", metavar="NAME", help="only runs of this site")
    parser.add_argument("--since", metavar="TIME", help="only runs submitted since: 2h or 3d ago, or 2026-11-01")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal.remarks import busy
    from torusrun.orchestrator.predict.answers.score import by_run, by_site
    from torusrun.orchestrator.predict.score import of_run
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.state import selection

    chosen = selection.Selection(
        site=selection.site(args.site) if args.site is not None else "",
        since_s=selection.moment("--since", args.since) if args.since is not None else None,
    )
    with busy("reading the runs"):
        known = selection.named(args.run_ids) if args.run_ids else index.there(index.runs())
        scores = [score for run in known if (score := of_run(run)) and chosen.asks_about(score)]
    found = by_run(scores) if args.run_ids else by_site(scores)
    print(json.dumps({"schema": SCHEMA, **found.record}, indent=1) if args.json else "\n".join(found.lines))
    return DONE
