"""Which runs a user means: names and patterns, states, a site, and a time since when they were submitted."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Protocol

from orchestrator.base.errors import UserError
from orchestrator.base.states import State
from orchestrator.runs.folder import index, settled
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.folder.settled import Settled
from orchestrator.runs.folder.shown_plan import site_name
from orchestrator.runs.state import ended as over
from orchestrator.runs.state.view import View, read_record
from orchestrator.spec.kinds import seconds
from orchestrator.spec.paths import exists, expanded
from orchestrator.spec.problems import shown
from training.recipe.near import did_you_mean

SHOWN_OVER = 20  # runs that are over, where nobody asks for more
PATTERN = re.compile(r"[*?\[]")


class HasSite(Protocol):
    """What tells of a run which site it is of, and when it was submitted."""

    @property
    def site(self) -> str: ...

    @property
    def submitted_s(self) -> float | None: ...


@dataclass(frozen=True)
class Selection:
    """What a run must be to be shown; empty and None leave all in. `since_s` is of time.time()."""

    states: frozenset[State] = frozenset()
    site: str = ""
    since_s: float | None = None

    def asks_about(self, run: HasSite) -> bool:
        """Whether what is known of a run does not rule it out. A time rules out no run whose time nobody knows."""
        if self.site and run.site != self.site:
            return False
        if isinstance(run, Settled) and self.states and run.state not in self.states:
            return False
        return self.since_s is None or run.submitted_s is None or run.submitted_s >= self.since_s

    def shows(self, view: View) -> bool:
        return not self.states or view.state in self.states


def named(words: Sequence[str]) -> list[RunFolder]:
    """The runs that any of these names or patterns mean, in the order of the index; all where there are no words.

    Raises UserError for a name that is no run's and a pattern that matches none.
    """
    known = index.runs()
    if not words:
        return known
    wanted = {run.folder: run for word in words for run in _meant(word, known)}
    return [*(run for run in known if run.folder in wanted), *_not_among(wanted.values(), known)]


def newest(known: Sequence[RunFolder]) -> tuple[list[RunFolder], int]:
    """Of these runs the ones that may not be over and the newest of the others; how many are left out."""
    ended = over.ids(known)
    old = {run.run_id for run in [run for run in known if run.run_id in ended][:-SHOWN_OVER]}
    return index.there([run for run in known if run.run_id not in old]), len(old)


def newest_views(views: Sequence[View]) -> list[View]:
    """The views of runs that are not over, and the newest of the others."""
    old = {id(view) for view in [view for view in views if view.state.over][:-SHOWN_OVER]}
    return [view for view in views if id(view) not in old]


def _meant(word: str, known: Sequence[RunFolder]) -> list[RunFolder]:
    if "/" in word or not PATTERN.search(word):
        return [index.find(word, known)]
    found = index.there([run for run in known if fnmatchcase(run.run_id, word)])
    if not found:
        raise UserError(f"no run's name matches {word!r}; `torusrun status` lists your runs")
    return found


def _not_among(runs: Iterable[RunFolder], known: Sequence[RunFolder]) -> list[RunFolder]:
    folders = {run.folder for run in known}
    return [run for run in runs if run.folder not in folders]


def states(text: str) -> frozenset[State]:
    """'running,failed' as states. Raises UserError for a word that is none."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    known = [state.value for state in State]
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known).lower()
            one_of = ", ".join(known).lower()
            raise UserError(f"--state: there is no state {shown(word.lower())}{hint} (states: {one_of})")
    if not words:
        raise UserError("--state: name at least one state, as in running,failed")
    return frozenset(State(word) for word in words)


def site(text: str, elsewhere: Collection[str] = ()) -> str:
    """The name of a site; of a path, that of its file. Runs on login nodes are of the sites `elsewhere`.

    Raises UserError for a site that neither exists nor is named by a run.
    """
    from orchestrator.spec.load import site_names  # with YAML, which `status` mostly does without

    name = site_name(text)
    names = {*site_names(), *elsewhere}
    if name in names or ("/" in text and exists(expanded(text))):
        return name
    sites = {row.run_id: row.site for row in settled.runs().values()}  # '' where only the end of a run was read
    names |= {sites.get(run.run_id) or read_record(run).site for run in index.runs()} | {*sites.values()}
    if name not in names or not name:
        known = sorted(names - {""})
        raise UserError(
            f"--site: there is no site {shown(text)}{did_you_mean(name, known)} (sites: {', '.join(known)})"
        )
    return name


def since(text: str, now_s: float | None = None) -> float:
    """'2h' before `now_s`, or '2026-11-01' or '2026-11-01T14:30' by this machine's clock, as of time.time().

    Raises UserError for anything else.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return (time.time() if now_s is None else now_s) - seconds(text)
    except ValueError:
        wanted = "a time ago as in 90m, 2h or 3d, or a date as in 2026-11-01 or 2026-11-01T14:30"
        raise UserError(f"--since: {shown(text)} is no time; write {wanted}") from None
