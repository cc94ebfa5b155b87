"""Blames the hosts that the end of an attempt names, or a check. Whoever records the end or the check calls it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import read_object, required
from torusrun.orchestrator.run.bad_nodes import memory
from torusrun.orchestrator.run.bad_nodes.evidence import REASONS, suspects
from torusrun.orchestrator.run.folder import attempt_folders, ledger, shown_plan
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder

if TYPE_CHECKING:
    from torusrun.orchestrator.keys.site import BadNodeRules

CHECKED = "found bad"


def note(run: RunFolder, number: int, end: End) -> None:
    """Blame the suspects of the end of attempt `number`, if there are any.

    A memory that cannot be written changes nothing about the end: it is left as it is.
    """
    named = _named(run, number, end) if end.cause in REASONS else ()
    if not named:
        return
    started = ledger.last(ledger.events(run.ledger), Started, number)
    hosts = suspects(replace(end, hosts=named), started.hosts if started else end.hosts)
    _blame(run, number, dict.fromkeys(hosts, end.reason), REASONS[end.cause], certain=False)


def ended(run: RunFolder, number: int, end: End, *, wait: bool) -> None:
    """Blame the suspects of an end that is certain."""
    if end.certain:
        note(run, number, end)


def found_bad(run: RunFolder, number: int, findings: Mapping[str, str]) -> None:
    """Blame hosts that a check of attempt `number` found bad, with what it found on each: they are bad at once.

    As for `note`, a memory that cannot be written changes nothing.
    """
    _blame(run, number, findings, CHECKED, certain=True)


def _blame(run: RunFolder, number: int, evidence: Mapping[str, str], reason: str, *, certain: bool) -> None:
    with contextlib.suppress(TorusrunError):
        plan = shown_plan.find(run, [number])[0] if evidence else None
        if not plan or schedulers.get(plan.scheduler).traits.one_machine:
            return
        rules = _rules(run, number)
        for host, why in evidence.items():
            memory.blame(
                plan.site, [host], reason, why, run=run.run_id, attempt=number, rules=rules, certain=certain
            )  # fmt: skip


def _rules(run: RunFolder, number: int) -> BadNodeRules:
    """The site's rules by the plan of the attempt. Raises SiteError if the plan is missing or damaged."""
    from torusrun.orchestrator.keys.read import read_value  # imported late: it reads YAML, which `status` does not need
    from torusrun.orchestrator.keys.site import BadNodeRules

    path = run.attempt(number).plan
    kept = required(path, read_object(path) or {}, "site", dict)
    return read_value(BadNodeRules, required(path, kept, "bad_nodes", dict), str(path))


def _named(run: RunFolder, number: int, end: End) -> tuple[str, ...]:
    """The hosts that belong to the cause of an end; () if they belong to another one.

    A scheduler may know another cause than the job's own record, which named the hosts. Without such a record its
    supervisor's host may be the lost one: then they are the hosts that left no record of a rank, unless none did.
    """
    try:
        own = End.read(run.attempt(number).end)
    except SiteError:
        return ()
    if own:
        return end.hosts if own.cause is end.cause else ()
    heard = attempt_folders.recorded(run.attempt(number))
    placed = attempt_folders.placed(run.attempt(number))[1]
    silent = [host for host, ranks in placed.items() if not {*ranks} & (heard["end"] | heard["told"])]
    return tuple(silent) if len(silent) < len(placed) else end.hosts
