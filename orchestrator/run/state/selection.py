"""The runs that a user selects by names, patterns, states, a site, and the time of submission."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.kinds import seconds
from torusrun.orchestrator.keys.paths import exists, expanded
from torusrun.orchestrator.keys.problems import shown
from torusrun.orchestrator.run.folder import index, settled
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.settled import Settled
from torusrun.orchestrator.run.folder.shown_plan import site_name
from torusrun.orchestrator.run.folder.sweep_folder import members_of
from torusrun.orchestrator.run.state import ended as over
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.run.state.view import View
from torusrun.training.recipe.near import did_you_mean

SHOWN_OVER = 20  # runs that are over, by default
PATTERN = re.compile(r"[*?\[]")


class HasSite(Protocol):
    """A run's site and the time of its submission."""

    @property
    def site(self) -> str: ...

    @property
    def submitted_s(self) -> float | None: ...


@dataclass(frozen=True)
class Selection:
    """The runs that are meant, submitted from `since_s` on and before `before_s`, of time.time(). None selects all."""

    states: frozenset[State] = frozenset()
    site: str = ""
    since_s: float | None = None
    before_s: float | None = None

    def asks_about(self, run: HasSite) -> bool:
        """Whether the run may be selected. A run whose time of submission is unknown may be selected by any time."""
        if self.site and run.site != self.site:
            return False
        if isinstance(run, Settled) and self.states and run.state not in self.states:
            return False
        if run.submitted_s is None:
            return True
        since_s, before_s = self.since_s, self.before_s
        return (since_s is None or run.submitted_s >= since_s) and (before_s is None or run.submitted_s < before_s)

    def shows(self, view: View) -> bool:
        if self.before_s is not None and view.submitted_s is None:  # it may be new
            return False
        return not self.states or view.state in self.states


def named(words: Sequence[str]) -> list[RunFolder]:
    """The runs that these names or patterns match, in the order of the index; all runs without a word.

    The name of a sweep stands for its members. Raises UserError for a name or a pattern that matches no run.
    """
    known = index.runs()
    if not words:
        return known
    wanted = {run.folder: run for word in words for run in _meant(word, known)}
    inside = {run.folder for run in known}
    return [
        *(run for run in known if run.folder in wanted),
        *(run for run in wanted.values() if run.folder not in inside),
    ]


def newest(known: Sequence[RunFolder]) -> tuple[list[RunFolder], int]:
    """(the runs that may not be over and the newest of the others, the number of runs left out)."""
    ended = over.ids(known)
    entries = dict.fromkeys(entry_of(run) for run in known if run.run_id in ended)  # a sweep counts once
    left = {*list(entries)[:-SHOWN_OVER]}
    old = {run.run_id for run in known if run.run_id in ended and entry_of(run) in left}
    return index.existing([run for run in known if run.run_id not in old]), len(old)


def entry_of(run: RunFolder) -> str:
    """The entry of a run in the list: its sweep's, or its own."""
    return str(run.sweep or run.folder)


def newest_views(views: Sequence[View]) -> list[View]:
    """The views of runs that are not over, and the newest of the others."""
    entries = [(view, entry_of(RunFolder(Path(view.folder)))) for view in views]
    left = {*list(dict.fromkeys(entry for view, entry in entries if view.state.over))[:-SHOWN_OVER]}
    return [view for view, entry in entries if not view.state.over or entry not in left]


def is_pattern(word: str) -> bool:
    """Whether a word matches the ids of runs, and names none; a word with a slash is a folder."""
    return "/" not in word and bool(PATTERN.search(word))


def _meant(word: str, known: Sequence[RunFolder]) -> list[RunFolder]:
    if not is_pattern(word):
        return members_of(word, known) or [index.find(word, known)]
    matching = index.existing([run for run in known if fnmatchcase(run.run_id, word)])
    if not matching:
        raise UserError(f"no run's name matches {word!r}; `torusrun status` lists your runs")
    return matching


def states(text: str) -> frozenset[State]:
    """'running,failed' as states. Raises UserError for an unknown word, or for no word."""
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
    """The name of a site, or the name of the file of a path. `elsewhere` are the sites of runs on login nodes.

    Raises UserError for a site that does not exist and that no run names.
    """
    from torusrun.orchestrator.keys.load import site_names  # loads YAML, which `status` rarely needs

    name = site_name(text)
    names = {*site_names(), *elsewhere}
    if name in names or ("/" in text and exists(expanded(text))):
        return name
    sites = {row.run_id: row.site for row in settled.runs().values()}  # '' if only the end of a run was read
    names |= {sites.get(run.run_id) or read_record(run).site for run in index.runs()} | {*sites.values()}
    if name not in names or not name:
        known = sorted(names - {""})
        raise UserError(
            f"--site: there is no site {shown(text)}{did_you_mean(name, known)} (sites: {', '.join(known)})"
        )
    return name


def moment(option: str, text: str, now_s: float | None = None) -> float:
    """The value of an option, in seconds of time.time().

    '2h' is before `now_s`, '2026-11-01' or '2026-11-01T14:30' in this machine's time.
    Raises UserError for anything else.
    """
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromisoformat(text).timestamp()
    try:
        return (time.time() if now_s is None else now_s) - seconds(text)
    except ValueError:
        wanted = "a time ago as in 90m, 2h or 3d, or a date as in 2026-11-01 or 2026-11-01T14:30"
        raise UserError(f"{option}: {shown(text)} is not a time; write {wanted}") from None
