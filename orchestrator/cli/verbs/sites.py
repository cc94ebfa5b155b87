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

from torusrun.orchestrator.base.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal.output import width
    from torusrun.orchestrator.sites.listing import listed

    table = listed()
    if args.json:
        print(json.dumps({"schema": 1, "sites": table.as_json()}, indent=1))
    else:
        print("\n".join(table.lines(width(sys.stdout))))
    return DONE
