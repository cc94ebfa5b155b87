"""All that the page says about one run, read from its folder. Records that are missing or damaged are left out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.errors import explained as explained_error
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.private import is_mine, read_bytes
from torusrun.orchestrator.base.shown.numbers import moment
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.folder import kept_secrets, ledger, metrics, shown_plan
from torusrun.orchestrator.run.folder.at_work import Slow
from torusrun.orchestrator.run.folder.events import Event
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.without_secrets import SHORTEST, forms_of, is_secret_variable, masked
from torusrun.orchestrator.run.image.recorded import Image, all_kept
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.state.account import Account, account
from torusrun.orchestrator.run.state.roles import RoleSeen, roles
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.explanation import Explanation, explained
from torusrun.orchestrator.show.logs.files import logs
from torusrun.orchestrator.show.placement import Outlook, outlook
from torusrun.orchestrator.show.screen.detail import nodes
from torusrun.orchestrator.show.screen.nodes import NodeHeard
from torusrun.training.counted import counted
from torusrun.training.reporting import events

LARGEST_BYTES = 1_000_000  # of a run's file
LONG = 8  # characters of a value that no other text has by chance

Value = TypeVar("Value")


@dataclass(frozen=True)
class RunFacts:
    """A run at `now_s` (of time.time()). None or empty is unknown.

    `spec` is the run's file. `account` is None without readable metrics. `hidden` are its secret variables, none of
    which is shown. `nodes` are those of the newest attempt, with the last report of each rank. `outlook` is its
    placement by today's topology.
    """

    view: View
    now_s: float
    rows: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Event] = ()
    account: Account | None = None
    explanation: Explanation | None = None
    plan: Plan | None = None
    hidden: Mapping[str, str] = field(default_factory=dict)
    spec: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    has_diff: bool = False
    images: Mapping[str, Image] = field(default_factory=dict)
    nodes: Sequence[NodeHeard] = ()
    slow: Slow | None = None
    outlook: Outlook | None = None
    roles: Sequence[RoleSeen] = ()

    def shown(self, text: str) -> str:
        """A text about the run in one line, without control characters, its secrets and what looks like a secret."""
        for form, name in self._forms:
            text = text.replace(form, f"[value of {name}]")
        return plain(str(masked(text)))

    @cached_property
    def _forms(self) -> list[tuple[str, str]]:
        """(text, name) of all forms in which secrets may be written, the longest first.

        Secrets are the declared ones, and long values of variables with the name of a secret.
        """
        named = {
            name: value
            for name, value in (self.plan.environment if self.plan else {}).items()
            if is_secret_variable(name) and len(value) >= LONG
        }
        pairs = {(form, name) for name, value in {**named, **self.hidden}.items() for form in forms_of(value)}
        return sorted((each for each in pairs if len(each[0]) >= SHORTEST), key=lambda each: (-len(each[0]), each))


def read(run: RunFolder, view: View) -> RunFacts:
    """The facts of a run with this view. It queries the source of the site's topology, if there is any."""
    known, attempt = records(run, view), run.attempt(view.attempt)
    plan = known.plan if is_mine(run.folder) else None  # its expressions and sources are not another user's to choose
    return replace(
        known,
        explanation=_known(lambda: explained(logs(run, None))) if view.state.over else None,
        nodes=sorted(nodes(attempt, known.now_s), key=lambda node: min(node.ranks, default=0)),
        slow=Slow.read(attempt.slow),
        outlook=_placed(plan, view.hosts) if plan else None,
    )


def records(run: RunFolder, view: View) -> RunFacts:
    """The facts of a run with this view that its folder records, which need no query and no computing."""
    now_s, rows, events = time.time(), _known(lambda: metrics.read(run.metrics)), ledger.events(run.ledger)
    spent = None if rows is None else account(events, rows, now_s, view.state)
    plan = _known(lambda: read_plan(run, view.attempt))
    return RunFacts(
        view=view,
        now_s=now_s,
        rows=rows or (),
        events=events,
        account=spent and replace(spent, forecast=shown_plan.read_forecast(run)),
        plan=plan,
        hidden=_known(lambda: kept_secrets.all_of(run)) or {},
        spec=_known(lambda: _text(run.spec)) or "",
        provenance=_known(lambda: read_object(run.provenance) or {}) or {},
        has_diff=run.code_diff.exists(),
        images=_known(lambda: all_kept(run)) or {},
        roles=[*roles(run.attempt(view.attempt)).values()] if plan and plan.run.roles else (),
    )


def _known(make: Callable[[], Value]) -> Value | None:
    """A value; None if it cannot be read or is not known."""
    with contextlib.suppress(TorusrunError):
        return make()
    return None


def _text(path: Path) -> str:
    with explained_error(f"{path}: cannot be read"):
        return read_bytes(path, LARGEST_BYTES).decode(errors="replace")


def _placed(plan: Plan, hosts: Sequence[str]) -> Outlook | None:
    """The placement on these hosts; None without a topology, or if today's topology leads to another order."""
    if not plan.site.topology or len(hosts) < 2:
        return None
    placed = _known(lambda: outlook(plan, hosts))
    return placed if placed and placed.arrangement.hosts == tuple(hosts)[: len(placed.arrangement.hosts)] else None


OF_RANKS = {"torch": "torch", "device": "device", "backend": "backend", "cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL",
            "python": "Python"}  # fmt: skip


def environment(facts: RunFacts) -> list[tuple[str, str]]:
    """(what, value) of all that is known."""
    return [(name, facts.shown(text)) for name, text in _facts(facts) if text]


def _facts(facts: RunFacts) -> Iterator[tuple[str, str]]:
    kept = facts.provenance
    yield "code", _code(facts)
    for name, image in facts.images.items():
        which = f" {name}" if name else ""
        yield f"image{which}", image.name or image.path
        yield f"image{which} SHA-256", image.sha256
        yield f"in the image{which}", _versions(image.versions)
    starts = [row for row in facts.rows if row["event"] == events.START]
    if starts:
        trained = {name: starts[-1].get(key) for key, name in OF_RANKS.items()}
        yield "training", ", ".join(f"{name} {value}" for name, value in trained.items() if isinstance(value, str))
    yield "torusrun", _environment_text(kept, "torusrun")
    yield "Python, submitting", _environment_text(kept, "python")
    packages = kept.get("packages")
    yield "packages, submitting", _versions(packages) if isinstance(packages, dict) else ""
    yield "submitted on", ", ".join(filter(None, (_environment_text(kept, "host"), _environment_text(kept, "system"))))
    yield "hosts", folded(facts.view.hosts)
    yield "run folder", facts.view.folder


def _code(facts: RunFacts) -> str:
    """The commit, and what git does not have of the code."""
    git = facts.provenance.get("git")
    if not isinstance(git, dict) or not isinstance(git.get("commit"), str):
        return "no git checkout"
    if git.get("unknown"):
        return f"commit {git['commit']}; git did not report the changes"
    untracked = git.get("untracked")
    parts = [
        f"commit {git['commit']}",
        "with changes, which are in code.diff of the run folder" if facts.has_diff else "",
        counted(len(untracked), "untracked file") if isinstance(untracked, list) and untracked else "",
    ]
    return ", ".join(filter(None, parts)) if any(parts[1:]) else f"{parts[0]}, without changes"


def _environment_text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _versions(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def overview(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """(what, value); '' for what is not known."""
    view, account, plan = facts.view, facts.account, facts.plan
    if account and account.attempts:
        begun = [attempt.begun_s for attempt in account.attempts if attempt.begun_s is not None]
        yield "submitted", moment(account.attempts[0].submitted_s)
        yield "started", moment(begun[0]) if begun else "not yet"
        yield "attempts", str(len(account.attempts))
    yield "site", ", ".join(dict.fromkeys(filter(None, (view.site, view.scheduler))))
    yield "nodes", _nodes_words(facts) if plan else ""
    yield "grid", str(Grid(view.grid)) if view.grid else ""
    if view.step is not None:
        yield "steps", f"{view.step:,} of {view.total_steps:,}" if view.total_steps else f"{view.step:,}"
    yield "job", view.job or ""
    yield from ((f"role {role.name}", role.sentence(facts.now_s)) for role in facts.roles)


def _nodes_words(facts: RunFacts) -> str:
    """'2 nodes x 4 GPUs'; on a site without GPUs, ranks."""
    assert facts.plan
    what = "GPU" if facts.plan.site.gpus else "rank"
    more = facts.plan.service_nodes
    services = f", and {counted(more, 'node')} of services" if more else ""
    return f"{counted(facts.plan.run.nodes, 'node')} x {counted(facts.plan.ranks_per_node, what)}{services}"
