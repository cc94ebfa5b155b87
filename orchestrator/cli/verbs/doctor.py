"""
Each check is ok, warning or failed, with its remedy. --job submits a small job of two nodes (of one, if there are
no more). It checks that the nodes see the folder of runs and Python, reach each other, and agree on the time. The exit
code is 0 without failed checks, otherwise 3.

examples:
  torusrun doctor
  torusrun doctor --site mycluster --job
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, SITE_FAILED
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.keys.site import Site
    from torusrun.orchestrator.sites.checks.check import Check

OUTCOMES = ("ok", "warning", "failed")


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.site(parser)
    wait = "submit a small job as well, and wait so long for it; default: 10m"
    parser.add_argument("--job", metavar="TIME", nargs="?", const="10m", help=wait)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.keys.kinds import DURATION
    from torusrun.orchestrator.run.plan.attempt_plan import option

    wait_s = option("--job", DURATION, args.job) if args.job else None
    return examine(args.site, wait_s=wait_s, as_json=args.json)


def examine(name: str, *, wait_s: float | None = None, as_json: bool = False) -> int:
    """Print the checks of a site as they are made, with a job if `wait_s`; returns the exit code."""
    from torusrun.orchestrator.keys.load import load_site, site_file

    site, file, made = load_site(name), site_file(name).absolute(), []
    if site.host:
        from torusrun.orchestrator.cli import elsewhere

        return elsewhere.doctor(name, as_json=as_json)
    for check in _checks(name, site, wait_s):
        made.append(check)
        if not as_json:
            _say(check)
    if as_json:
        checks = [check.as_json() for check in made]
        print(json.dumps({"schema": 1, "site": name, "file": str(file), "checks": checks}, indent=1))
    else:
        count = {word: sum(check.outcome == word for check in made) for word in OUTCOMES}
        print(f"{name}: {', '.join(f'{number} {word}' for word, number in count.items())}")
    return SITE_FAILED if any(check.outcome == "failed" for check in made) else DONE


def _checks(name: str, site: Site, wait_s: float | None) -> Iterator[Check]:
    from torusrun.orchestrator.sites.checks import examine as examined

    yield from examined(site, job=wait_s is not None)
    if wait_s is not None:
        from torusrun.orchestrator.sites.hello_job import checks

        yield from checks(name, site, wait_s)


def _say(check: Check) -> None:
    from torusrun.orchestrator.base import private

    print(private.plain(f"{check.outcome:8} {check.name:18} {check.said}").replace("\n", "; "), flush=True)
    if check.mend:
        print(private.plain(f"{'':27} mend: {check.mend}"), flush=True)
