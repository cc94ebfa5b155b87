"""
Yours are in ~/.config/torusrun/sites, and come before those of the same name that ship with torusrun.

examples:
  torusrun sites
  torusrun sites --json
"""

from __future__ import annotations

import argparse
import json
import sys

from orchestrator.base.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from orchestrator.base.private import plain
    from orchestrator.base.terminal.columns import EMPTY, Column, TableRow, table
    from orchestrator.base.terminal.output import width
    from orchestrator.sites.listing import listed

    found = listed()
    if args.json:
        print(json.dumps({"schema": 1, "sites": [site.as_json() for site in found]}, indent=1))
        return DONE
    rows = [
        TableRow(
            (site.name, plain(site.scheduler) or EMPTY, plain(site.queue) or EMPTY),
            "ships with torusrun" if site.ships else plain(site.file),
            told_whole=True,
            notes=(plain(f"cannot be read: {site.wrong}"),) if site.wrong else (),
        )
        for site in found
    ]
    columns = (Column("SITE"), Column("SCHEDULER"), Column("QUEUE", left_out=1))
    print("\n".join(table(columns, "FILE", rows, width(sys.stdout))))
    return DONE
