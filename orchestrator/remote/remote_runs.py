"""The runs that were submitted to login nodes from here: a file for each, with the host and the last known state.

A file is written before the run is sent. So no run that may have been submitted is forgotten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.remote.host import LoginHost
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.state.selection import is_pattern
from torusrun.orchestrator.run.state.view import View

SCHEMA = 1


@dataclass(frozen=True)
class Known:
    """A run on a login node. `last` is its newest view as received, `last_s` the time of that (of time.time())."""

    run: str
    host: LoginHost
    site: str
    submitted_s: float
    last: View | None = None
    last_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether it was over at the last look."""
        return self.last is not None and self.last.state.over


def place() -> Path:
    return state_folder() / "remote"


def file_of(run: str) -> Path:
    return place() / f"{run}.json"


def keep(known: Known) -> None:
    private.make(place())
    write_json(file_of(known.run), {"schema": SCHEMA, **dataclasses.asdict(known)}, secret=True)


def seen(known: Known, view: View) -> None:
    """Record the state of a run."""
    keep(replace(known, last=view, last_s=time.time()))


def forget(run: str) -> None:
    file_of(run).unlink(missing_ok=True)


def runs() -> list[Known]:
    """All runs, oldest first; a file that cannot be read is left out."""
    try:
        paths = list(place().glob("*.json"))
    except OSError:
        return []
    known = [run for path in paths if (run := _read(path))]
    return sorted(known, key=lambda run: (run.submitted_s, len(run.run), run.run))  # a sweep: all at once


def _read(path: Path) -> Known | None:
    try:
        kept = read_object(path) or {}
        last = kept.pop("last", None)
        run: Known = record_of(Known, kept, str)
        if kept.get("schema") != SCHEMA or run.run != path.stem:
            return None
    except (SiteError, ValueError):
        return None
    with contextlib.suppress(ValueError):  # a view that cannot be read counts as unknown
        return replace(run, last=record_of(View | None, last))
    return run


def find(word: str) -> Known | None:
    """The run on a login node that `word` names, as in `run.folder.index.find`; None for a local run or none.

    Raises UserError if it is the beginning of several ids.
    """
    known = runs() if "/" not in word else []
    if not known:
        return None
    if word == "last":
        newest, here = known[-1], index.runs()
        is_here = here and (index.made_ns(here[-1]) or 0) / 1e9 > newest.submitted_s
        return None if is_here else newest
    far = {run.run: run for run in known if run.run.startswith(word)}
    ids = [run.run_id for run in index.runs() if run.run_id.startswith(word)] if far else []
    if word in far or word in ids or not far:
        return far.get(word)
    if len(names := [*ids, *far]) > 1:
        if sweep(word):
            raise UserError(f"{word!r} is a sweep: name one of its members, as {names[0]}")
        raise UserError(f"{word!r} begins the ids of {len(names)} runs: {', '.join(names)}")
    return far[names[0]]


def sweep_of(run: str) -> str:
    """The id of the sweep of which a run of this id is a member; '' for any other run."""
    name, _, number = run.rpartition(".")
    return name if number.isdigit() else ""


def members(known: Known) -> list[Known]:
    """The members of a sweep."""
    return [run for run in runs() if sweep_of(run.run) == known.run]


def sweep(word: str, *, of_any: bool = False) -> Known | None:
    """The sweep on a login node whose id is `word` or begins with it; None if `word` names a run, or a local sweep.

    With `of_any`, a member's id names its sweep, and 'last' the newest. Raises UserError if it begins several ids then.
    """
    known = runs()
    far = {name: run for run in known if (name := sweep_of(run.run))}
    if not far or not word:
        return None
    local = index.runs()
    here = {run.sweep.name: index.made_ns(run) or 0 for run in local if run.sweep}
    if of_any and word == "last":
        name, newest = list(far.items())[-1]
        return None if max(here.values(), default=0) / 1e9 > newest.submitted_s else replace(newest, run=name)
    if of_any and sweep_of(word) in far:
        word = sweep_of(word)
    others = [run.run for run in known if not sweep_of(run.run)]
    others += [run.run_id for run in local if not run.sweep]
    every = [*far, *here, *others]
    named = [word] if word in every else [name for name in every if name.startswith(word)]
    if len(named) == 1 and named[0] in far:
        return replace(far[named[0]], run=named[0])
    if len(named) > 1 and of_any:
        raise UserError(f"{word!r} begins the ids of {len(named)} sweeps and runs: {', '.join(named)}")
    return None


def on(host: LoginHost, word: str) -> str:
    """The id of the run on this login node that `word` names. An unknown word is returned: the node may know it.

    Raises UserError if it names a run elsewhere.
    """
    run = find(word)
    if run is None and word != "last":
        return word
    if run is None or run.host.address != host.address:
        raise UserError(f"{word!r} is no run of {host.address}, to which this one goes: name a run there")
    return run.run


def awaited_on(host: LoginHost, after: Sequence[str], after_any: Sequence[str]) -> list[str]:
    """The options of `submit` for runs on this login node that are awaited. Raises UserError as `on` does."""
    both = {"after": after, "after-any": after_any}
    parts = [(option, *word.partition(":")) for option, words in both.items() for word in words]  # RUN or RUN:ROLE
    return [f"--{option}={on(host, run)}{colon}{role}" for option, run, colon, role in parts]


def newest(known: Sequence[Known], most: int) -> list[Known]:
    """All runs that are not over, and the newest `most` of those that are."""
    old = {run.run for run in [run for run in known if run.over][:-most]}
    return [run for run in known if run.run not in old]


def _matching(word: str, known: Sequence[Known]) -> list[Known]:
    """The runs on login nodes that a word names: those of a pattern, the members of a sweep, or a run."""
    if is_pattern(word):
        return [run for run in known if fnmatchcase(run.run, word)]
    if named := sweep(word):
        return members(named)
    return [run for run in (find(word),) if run]


def split(words: Sequence[str]) -> tuple[list[str], list[Known]]:
    """The words that name local runs, or patterns, and the runs on login nodes that the words name."""
    known, here, far = runs(), [], dict[str, Known]()
    for word in words:
        named = {run.run: run for run in _matching(word, known)}
        far |= named
        if not named or (is_pattern(word) and any(fnmatchcase(run.run_id, word) for run in index.runs())):
            here.append(word)
    return here, list(far.values()) if words else known


def of_one_place(words: Sequence[str]) -> list[Known]:
    """The runs on a login node that these words name, or all that are not over; [] for runs of this machine.

    Raises UserError if the runs are in several places.
    """
    here, far = split(words)
    far = far if words else [run for run in far if not run.over]
    if far and (here or len({run.host.address for run in far}) > 1):
        names = ", ".join(sorted({run.host.address for run in far} | ({"this machine"} if here else set())))
        raise UserError(f"these runs are on {names}: name those of one; `torusrun status` shows all")
    return far
