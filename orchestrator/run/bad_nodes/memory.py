"""The file of the memory of bad nodes in the user's state folder: one line per event, all sites together.

Only its user can read it. Every change holds a lock beside it, so that the file can be written anew: without the events
that make no difference any more, and with the newest of too many.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator.base import lock, private, whole_lines
from torusrun.orchestrator.base.errors import UserError, explained
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.run.bad_nodes import bad_node
from torusrun.orchestrator.run.bad_nodes.bad_node import DAY_S, Blamed, BlamedNode, Event, Forgiven, as_line, from_line
from torusrun.orchestrator.run.folder.shown_plan import site_name

LARGEST_BYTES = 1 << 20  # then it is written anew, with at most half as much
LOCK_S = 10.0
ENDS = 2  # ends of attempts that must name a host before it is bad


def place() -> Path:
    """The file. Raises UserError without a home folder."""
    return state_folder() / "bad_nodes.jsonl"


def events() -> list[Event]:
    """All events that can be read, as they were added; [] without a file, or without a home."""
    try:
        lines, rest = whole_lines.last_lines(place(), 2 * LARGEST_BYTES)
    except (OSError, UserError):
        return []
    return [event for line in (*lines, rest) if line.strip() and (event := from_line(line))]


def blamed(now_s: float | None = None) -> list[BlamedNode]:
    """All hosts with blames that count now."""
    return bad_node.blamed(events(), time.time() if now_s is None else now_s)


def bad(site: str, now_s: float | None = None) -> list[BlamedNode]:
    """The bad hosts of the site that a run names, the most certain first."""
    return bad_node.bad(events(), time.time() if now_s is None else now_s, site_name(site))


def blame(
    site: str,
    hosts: Sequence[str],
    reason: str,
    evidence: str,
    *,
    run: str = "",
    attempt: int = 0,
    for_s: float = DAY_S,
    certain: bool = True,
) -> None:
    """Blame hosts of a site, by a name or a path as in a run, because of this attempt; a user blames without a run.

    Unless the blame is `certain`, they are bad once another attempt blames them, too, within `for_s`. An attempt counts
    once for each host. Raises SiteError or UserError if the memory cannot be written.
    """
    after, name, now_s = 1 if certain else ENDS, site_name(site), time.time()
    _add([
        Blamed(name, host, reason, evidence, run, attempt, after, for_s, time_s=now_s)
        for host in dict.fromkeys(hosts)
    ])  # fmt: skip


def forgive(hosts: Sequence[str] | None, site: str | None = None) -> list[BlamedNode]:
    """Forgive these hosts, by default all, on this site, by default on all; the forgiven ones.

    Raises UserError for a host that was not blamed, SiteError if the memory cannot be written.
    """
    known = [node for node in blamed() if site is None or node.site == site_name(site)]
    wanted = [node for node in known if hosts is None or any(same_host(node.host, host) for host in hosts)]
    for host in hosts or ():
        if not any(same_host(node.host, host) for node in wanted):
            raise UserError(f"{host} was not blamed; `torusrun nodes` lists those that were")
    now_s = time.time()  # the clock of a node may be ahead
    _add([Forgiven(node.site, node.host, time_s=max(now_s, node.last_s + 0.001)) for node in wanted])
    return wanted


def _add(new: Sequence[Event]) -> None:
    if not new:
        return
    path = place()
    private.make(path.parent)
    with lock.held(path.with_suffix(".lock"), wait_s=LOCK_S) as mine:
        if mine is not False:
            _shorten(path)
        whole_lines.append(path, "\n".join(map(as_line, new)), private.SECRET)


def _shorten(path: Path) -> None:
    """Write the file anew if it has become large. The caller holds the lock."""
    with explained(f"{path}: cannot be written"):
        if path.exists() and path.stat().st_size > LARGEST_BYTES:
            private.write_bytes(path, b"".join(_newest(bad_node.living(events(), time.time()))))


def _newest(kept: Sequence[Event]) -> list[bytes]:
    """The lines of the newest events, in their order, with half as many bytes as the file may have."""
    lines: list[bytes] = []
    left = LARGEST_BYTES // 2
    for event in reversed(kept):
        line = f"{as_line(event)}\n".encode()
        left -= len(line)
        if left < 0:
            break
        lines.append(line)
    return lines[::-1]
