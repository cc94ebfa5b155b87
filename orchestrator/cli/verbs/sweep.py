"""
It shows the settings in which the members differ, their states, and the newest value of each of their metrics.

examples:
  torusrun sweep last
  torusrun sweep last --best accuracy
  torusrun sweep last --best min:perplexity --csv > results.csv
"""

from __future__ import annotations

import argparse
import json
import sys

from torusrun.orchestrator.base.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep_id", metavar="SWEEP", help="a sweep's id, the start of its id, a member's id, or 'last'")
    parser.add_argument(
        "--best",
        metavar="METRIC",
        help="sort by this metric, the best first: accuracy, loss, or max:NAME and min:NAME for any other",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--csv", action="store_true", help="as CSV")
    how.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal import output
    from torusrun.orchestrator.base.terminal.remarks import busy
    from torusrun.orchestrator.remote import remote_runs
    from torusrun.orchestrator.run.folder.sweep_folder import find
    from torusrun.orchestrator.sweeps import sweep_cost, sweep_table
    from torusrun.orchestrator.sweeps.sweep_rows import rows_of

    if there := remote_runs.sweep(args.sweep_id, of_any=True):
        from torusrun.orchestrator.remote import verbs

        flags = [f"--{name}" for name in ("csv", "json") if getattr(args, name)]
        return verbs.run_there(there, "sweep", [*([f"--best={args.best}"] if args.best else []), *flags])
    sweep, members = find(args.sweep_id)
    with busy("reading the members"):
        rows = rows_of(sweep, members)
    over = {row.view.run for row in rows if row.view.state.over}
    if args.best:
        rows = sweep_table.ranked(rows, sweep_table.goal(args.best, rows))
    if args.json:
        found = {"members": sweep_table.as_json(rows), "cost": sweep_cost.as_json(sweep, members, over)}
        print(json.dumps({"schema": 1, "sweep": sweep.sweep_id, **found}, indent=1))
    elif args.csv:
        print(sweep_table.as_csv(rows), end="")
    else:
        width = output.width(sys.stdout)
        print("\n".join([*sweep_table.table(rows).lines(width), *sweep_cost.lines(sweep, members, over)]))
    return DONE
