"""When a run was submitted and started, where it ran, on what, and how far it came."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.base.shown.numbers import moment
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.training.counted import counted


def overview(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """(what, value); '' for what is not known."""
    view, account, plan = facts.view, facts.account, facts.plan
    if account and account.attempts:
        begun = [one.begun_s for one in account.attempts if one.begun_s is not None]
        yield "submitted", moment(account.attempts[0].submitted_s)
        yield "started", moment(begun[0]) if begun else "not yet"
        yield "attempts", str(len(account.attempts))
    yield "site", ", ".join(dict.fromkeys(filter(None, (view.site, view.scheduler))))
    yield "nodes", _nodes(facts) if plan else ""
    yield "grid", str(Grid(view.grid)) if view.grid else ""
    if view.step is not None:
        yield "steps", f"{view.step:,} of {view.total_steps:,}" if view.total_steps else f"{view.step:,}"
    yield "job", view.job or ""


def _nodes(facts: RunFacts) -> str:
    """'2 nodes x 4 GPUs'; on a site without GPUs, ranks."""
    assert facts.plan
    what = "GPU" if facts.plan.site.node.gpus else "rank"
    return f"{counted(facts.plan.run.nodes, 'node')} x {counted(facts.plan.ranks_per_node, what)}"
