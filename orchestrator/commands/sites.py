"""
Yours are in ~/.config/torusrun/sites, and come before those of the same name that ship with torusrun.

examples:
  torusrun sites
  torusrun sites --json
"""

from __future__ import annotations

import argparse
import json

from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from orchestrator import private
    from orchestrator.sites.listing import listed

    found = listed()
    if args.json:
        print(json.dumps({"schema": 1, "sites": [site.as_json() for site in found]}, indent=1))
        return DONE
    wide = max(len(site.name) for site in found)
    print(f"{'SITE':{wide}}  {'SCHEDULER':10}  {'QUEUE':10}  FILE")
    for site in found:
        where = "ships with torusrun" if site.ships else site.file
        said = f"cannot be read: {site.wrong}" if site.wrong else where
        print(private.plain(f"{site.name:{wide}}  {site.scheduler or '-':10}  {site.queue or '-':10}  {said}"))
    return DONE
