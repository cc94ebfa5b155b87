"""Blames the hosts that the end of an attempt names, or a check. Whoever records the end or the check calls it.

Two causes of an end speak against a host: the host was lost, or its ranks hung and the host itself explains this: one
of its wrappers does not answer, or one of its ranks waits for a disk. No other cause does:

- a killed rank, a full memory, a full disk and a time limit follow from what the user asked for;
- an error of the program, a wrong configuration and a missing image would be the same on every host;
- a rank that is at another place in its program than the others, or that somebody stopped, may be as its user wrote it;
- a lost connection names the rank that noticed, not the rank that was gone;
- a launcher that put a rank elsewhere names no host that is bad.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import damaged, read_object, required
from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.keys.kinds import EXPIRY
from torusrun.orchestrator.run.bad_nodes import memory
from torusrun.orchestrator.run.folder import attempt_folders, ledger, shown_plan
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.how_ended import WAITS_FOR_DISK
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder

REASONS = {Cause.HOST_LOST: "lost", Cause.HANG: "hung"}
LARGEST_SHARE = 4  # if more than every fourth host is named, they share a switch, a power supply, or the network
CHECKED = "found bad"


def suspects(end: End, hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts that the end speaks against, of the `hosts` of the attempt; () if it does not name them.

    If an end names many hosts of the attempt, or all, the bad part may be something that they share.
    """
    if end.cause not in REASONS or (end.cause is Cause.HANG and not _explains_the_hang(end)):
        return ()
    named = tuple(dict.fromkeys(end.hosts))
    return named if len(named) == 1 or LARGEST_SHARE * len(named) <= len(set(hosts)) else ()


def _explains_the_hang(end: End) -> bool:
    """Whether a hang is that of a single host: a wrapper that does not answer, or a rank that waits for a disk."""
    if len(set(end.hosts)) != 1 or "frame" in end.evidence:
        return False
    return end.evidence.get("process", WAITS_FOR_DISK) == WAITS_FOR_DISK


def note(run: RunFolder, number: int, end: End) -> None:
    """Blame the suspects of the end of attempt `number`. The end stays as it is if the memory cannot be written."""
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
    """Blame the hosts that a check of attempt `number` calls bad, with its findings on each: they are bad at once."""
    _blame(run, number, findings, CHECKED, certain=True)


def _blame(run: RunFolder, number: int, evidence: Mapping[str, str], reason: str, *, certain: bool) -> None:
    with contextlib.suppress(TorusrunError):
        plan = shown_plan.find(run, [number])[0] if evidence else None
        if not plan or schedulers.get(plan.scheduler).traits.one_machine:
            return
        for_s = _for_s(run, number)
        for host, why in evidence.items():
            memory.blame(
                plan.site, [host], reason, why, run=run.run_id, attempt=number, for_s=for_s, certain=certain
            )  # fmt: skip


def _for_s(run: RunFolder, number: int) -> float:
    """How long the site remembers, by the plan of the attempt. Raises SiteError if the plan is missing or damaged."""
    path = run.attempt(number).plan
    site = required(path, read_object(path) or {}, "site", dict)
    try:
        return float(EXPIRY.parse(required(path, site, "forget_bad_nodes", str)))
    except ValueError as error:
        raise damaged(path, f"'forget_bad_nodes' {error}") from None


def _named(run: RunFolder, number: int, end: End) -> tuple[str, ...]:
    """The hosts that belong to the cause of an end; () if they belong to another cause.

    A scheduler may know another cause than the job's own record, which named the hosts. Without such a record the
    supervisor's host may be lost: then they are the hosts that left no record of a rank, unless no host left any.
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
