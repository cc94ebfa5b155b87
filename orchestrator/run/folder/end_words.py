"""The end of an attempt and its sentence, made from how it ended. Only this module makes such a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.run.folder.how_ended import How
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.training.counted import all_of, first_of

if TYPE_CHECKING:  # `status` needs none
    from torusrun.orchestrator.place.placement.mapping import Placement

MOST_IN_WORDS = 8
MOST_KEPT = 64  # hosts and ranks in a record


def ended(
    how: How,
    placement: Placement | None = None,
    *,
    by: RankEnd | None = None,
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    step: int | None = None,
    certain: bool = True,
    again: bool = True,
    followed_by: int | None = None,
    **evidence: object,
) -> End:
    """The end of an attempt whose ranks are in `placement`.

    It concerns `ranks`, or all ranks on `hosts`. `by` is the end of the rank that caused it. `evidence` holds the other
    words of the sentence. For the other arguments see `End`.
    """
    if by:
        ranks, evidence = (by.rank,), {**_shown_by(by), **evidence}
    if placement:
        ranks = ranks or [slot.rank for slot in placement.slots if slot.host in hosts]
        hosts = hosts or list(dict.fromkeys(placement.slots[rank].host for rank in ranks))
    evidence = {name: value for name, value in evidence.items() if value not in ("", None)}
    parts = {**evidence, **_named(placement, ranks, hosts), **_quoted(placement, evidence), "at": after(step)}
    words = how.sentence.format_map(defaultdict(str, parts, rank=by.words if by else ""))
    kept = {name: str(value) for name, value in evidence.items()}
    return End(
        how.cause.state, words, certain, again, followed_by, cause=how.cause,
        hosts=tuple(hosts[:MOST_KEPT]), ranks=tuple(ranks[:MOST_KEPT]), step=step, evidence=kept,
    )  # fmt: skip


def later(end: End, step: int | None) -> End:
    """The end of an attempt that was asked to stop, with its last step added."""
    return replace(end, step=step, reason=f"{end.reason}{after(step)}")


def after(step: int | None) -> str:
    """' after step 57', or '' before the first step."""
    return "" if step is None else f" after step {step}"


def listed(ranks: Collection[int]) -> str:
    """'rank 3' or 'ranks 4, 5, 6', at most eight of them."""
    more = ", ..." if len(ranks) > MOST_IN_WORDS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, list(ranks)[:MOST_IN_WORDS]))}{more}"


def name(placement: Placement, rank: int) -> str:
    """'rank 3 (node2, local rank 1)'."""
    slot = placement.slots[rank]
    return f"rank {rank} ({slot.host}, local rank {slot.local_rank})"


def _shown_by(end: RankEnd) -> dict[str, object]:
    """The evidence in a rank's end record."""
    killed = None if end.signal is None else signal_name(end.signal)
    return {"exit_code": end.exit_code, "signal": killed, "error": end.error}


def _named(placement: Placement | None, ranks: Sequence[int], hosts: Sequence[str]) -> dict[str, str]:
    """The ranks and hosts, in the words of the sentences."""
    if not placement:
        return {}
    ranks_on = {host: [slot.rank for slot in placement.slots if slot.host == host] for host in hosts}
    first = name(placement, ranks[0]) if ranks else ""
    return {
        "all": all_of(placement.grid.ranks, "rank"),
        "who": first if len(ranks) == 1 else listed(ranks),
        "first": f"{first} and {len(ranks) - 1} more" if len(ranks) > 1 else first,
        "ranks": listed(ranks),
        "host": hosts[0] if hosts else "",
        "places": first_of([f"{host} ({listed(on)})" for host, on in ranks_on.items()], MOST_IN_WORDS),
    }


def _quoted(placement: Placement | None, evidence: dict[str, object]) -> dict[str, str]:
    """Quoted lines, the first rank that noticed and the like, as additions to a sentence."""
    quoted = {"said": f": {evidence['said']}"} if "said" in evidence else {}
    if placement and type(witness := evidence.get("witness")) is int:
        quoted["witness"] = f"; {name(placement, witness)} lost its connection to another rank"
    if "supervisor" in evidence:
        quoted["supervisor"] = f"; its supervisor was on {evidence['supervisor']}"
    if "doing" in evidence:
        quoted["while"] = f" for {evidence['doing']}"
    if "first_at" in evidence:
        quoted["first_at"] = f", the first at {evidence['first_at']}"
    if "stacks" in evidence:
        quoted["stacks"] = f"; stacks are in the logs of {evidence['stacks']}"
    return quoted
