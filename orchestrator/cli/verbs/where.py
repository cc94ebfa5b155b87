"""
Asks the scheduler of every site that is yours, also behind a login node, about each of its queues, and submits nothing.
`submit --site soonest` takes the first place of the answer.

examples:
  torusrun where run.yaml
  torusrun where run.yaml --site cluster --nodes 16 --time 12h
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.defect import report
from torusrun.orchestrator.base.errors import DONE, USER_MISTAKE, TorusrunError, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.run.plan.plan import Plan
    from torusrun.orchestrator.sites.where import Place


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    shared_arguments.keys(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal.output import width
    from torusrun.orchestrator.sites.where import table

    places = table(_places(args.file, args.settings, args.site))
    if args.json:
        print(json.dumps({"schema": 1, "places": places.as_json()}, indent=1))
    else:
        print("\n".join(places.lines(width(sys.stdout))))
    return DONE if any(place.possible for place in places.rows) else USER_MISTAKE


def soonest(file: str, settings: Sequence[str]) -> Place:
    """The place where a run starts first. Raises UserError if it can start nowhere."""
    from torusrun.orchestrator.sites.where import NOT_KNOWN, table

    best, *others = table(_places(file, settings, None)).rows
    if not best.possible:
        silent = sorted({place.site for place in (best, *others) if place.outcome == NOT_KNOWN})
        known = f"no site of yours is known to start the run (not known: {', '.join(silent)})"
        none = known if silent else "the run can start at none of your sites"
        raise UserError(f"{none}: `torusrun where {file}` says why")
    return best


def _places(file: str, settings: Sequence[str], site: str | None) -> list[Place]:
    """The places of one site, or of the run's own and all that are the user's."""
    from torusrun.orchestrator.keys.load import load
    from torusrun.orchestrator.sites.listing import listed

    if site:
        return _at(site, file, settings)
    loaded = load(file, settings=settings)
    known = {row.file: row.name for row in listed().rows if not row.ships and _is_cluster(row.scheduler)}
    if loaded.site.host or _is_cluster(loaded.site.scheduler):
        known.setdefault(loaded.site_source, loaded.site_source)
    if not known:
        raise UserError("no cluster is among your sites: `torusrun init` writes a site, or name one by --site")
    names, over = [*known.values()], threading.Event()
    with ThreadPoolExecutor(len(names)) as pool:
        try:
            answers = [*pool.map(lambda name: _at(name, file, settings, over), names)]
        finally:
            over.set()  # ctrl-C ends the commands, and the pool waits for its threads
    # Login nodes that want a password ask for it here, in turn: of two at once, each could get the other's password.
    return [place for name, at in zip(names, answers, strict=True) for place in at or _at(name, file, settings)]


def _is_cluster(scheduler: str) -> bool:
    """Whether a site with this scheduler is worth a question. This machine has no queue, and would always be first."""
    from torusrun.orchestrator import schedulers

    return bool(scheduler) and not schedulers.get(scheduler).traits.one_machine


def _at(site: str, file: str, settings: Sequence[str], over: threading.Event | None = None) -> list[Place]:
    """The places of a site, at least one.

    With `over`, other sites are asked meanwhile. Then a login node that has a question gives [], a site that fails says
    so in its place, and once `over` is set no queue follows.
    """
    from torusrun.orchestrator.remote.host import HostRefused
    from torusrun.orchestrator.run.plan.plan import plan
    from torusrun.orchestrator.sites import where

    alone = over is None
    places: list[Place] = []
    try:
        planned = plan(file, site=site, settings=settings)
        for place in _there(site, file, settings, planned, alone) if planned.site.host else where.places(site, planned):
            places.append(place)
            if over and over.is_set():
                break
        return places
    except TorusrunError as error:
        if isinstance(error, HostRefused) and not alone and sys.stdin and sys.stdin.isatty():
            return []
        outcome = where.NEVER if isinstance(error, UserError) else where.NOT_KNOWN
        return [where.Place(site, "", outcome, str(error))]
    except Exception as error:
        if alone:
            raise
        if isinstance(error, OSError):
            why = f"{error.filename or 'this machine'}: {error.strerror or error}"
        else:
            why = report(error, ["where"])
        return [where.Place(site, "", where.NOT_KNOWN, why)]


def _there(site: str, file: str, settings: Sequence[str], planned: Plan, asks: bool) -> Iterator[Place]:
    """The places of a site with a login node, by the same verb on it."""
    from dataclasses import replace

    from torusrun.orchestrator.remote import call, of_file
    from torusrun.orchestrator.remote.host import of
    from torusrun.orchestrator.remote.program import WaitLimits, received
    from torusrun.orchestrator.sites.where import Places

    ended = of_file.run("where", planned, file, ["--json"], site=site, settings=settings, limits=WaitLimits(asks=asks))
    host = of(planned.site)
    if not ended.out:
        call.checked(host, ended)
    answer: Places = received(host, Places, ended.out)
    yield from (replace(place, site=site) for place in answer.places)
