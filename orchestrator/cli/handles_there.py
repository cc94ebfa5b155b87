"""Runs and sweeps on login nodes in Python: the functions of `Run` and `Sweep`, by the verbs that login nodes run."""

from __future__ import annotations

import tempfile
import time as clock
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.handle import Run, Sweep
from torusrun.orchestrator.keys.kinds import DURATION, GRID
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.remote import call, program, remote_runs, status
from torusrun.orchestrator.remote.host import BadAnswer, LinkLost, Unanswered
from torusrun.orchestrator.remote.program import WaitLimits
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.folder import metrics, patterns
from torusrun.orchestrator.run.folder.events import Changes
from torusrun.orchestrator.run.folder.patterns import Pattern
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.run.state.account import Account
from torusrun.orchestrator.run.state.view import View
from torusrun.training.files.below import opened

LOOKS_S = 10.0  # at an allocation that waits for its nodes
WATCHED_S = 30.0  # then a timeout of the caller is checked
HELD = "held for"  # begins the reason of an allocation that takes attempts


class OnLoginNode:
    """What is known here of a run or a sweep on a login node. It has no folder here."""

    known: Known

    def __init__(self, known: Known) -> None:
        object.__setattr__(self, "known", known)

    @property
    def id(self) -> str:
        return self.known.run

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r} on {self.known.host.address})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, OnLoginNode) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


class RunThere(OnLoginNode, Run):
    """A run on a login node. Functions that need its folder raise UserError: `collect` copies it here."""

    @property
    def folder(self) -> RunFolder:
        raise UserError(f"{self.id} is on {self.known.host.address}: `run.collect(FOLDER)` copies its folder here")

    def status(self) -> View:
        return status.views([self.known])[0]

    def _follow(self) -> Generator[View, None, None]:
        for (view,) in follow([self.known]):
            yield view

    def metrics(self) -> list[dict[str, Any]]:
        from torusrun.orchestrator.remote.fetch import fetch

        with tempfile.TemporaryDirectory(prefix="torusrun-") as folder:
            copy = RunFolder(Path(folder))
            with opened(copy.folder) as into:
                fetch(self.known, into, "none", patterns.parse_list(f"{copy.metrics.name},{copy.ledger.name}"))
            return metrics.read(copy.metrics)

    def account(self) -> Account:
        rows = status.rows([self.known], long=True)
        if self.id not in rows.accounts:
            raise BadAnswer(f"{self.known.host.address}: no account of {self.id}: {rows.views[0].reason}")
        return rows.accounts[self.id]

    def cancel(self) -> None:
        act(self.known, "cancel")

    def _resume(self, made: Changes, force: bool, new_image: bool, held: str) -> Path | None:
        more = [*(["--new-image"] if new_image else []), *([f"--in={held}"] if held else [])]
        resumed = act(self.known, "resume", *_options(made, force), *more)
        _, _, origin = resumed.partition(" resumes from ")
        return None if origin.startswith("the beginning") else Path(origin.strip())

    def reproduce(self) -> RunThere:
        from torusrun.orchestrator.remote.of_file import again

        return RunThere(again(self.known))

    def provenance(self) -> dict[str, Any]:
        origin: dict[str, Any] = call.answer(
            self.known.host, call.words("show", self.id, "--json", buffered=True), dict[str, Any]
        )
        return origin

    def shell(self, *command: str, rank: int = 0, role: str = "", terminal: bool = False) -> int:
        """As in `Run`. Raises LinkLost if the link breaks, which ends the command."""
        words = ["shell", self.id, *_beside(rank, role), "--", *command]
        return call.interact(self.known.host, words, terminal=terminal)

    def proxy(self, *, rank: int = 0, role: str = "") -> int:
        """As in `Run`, through the login node; the keys are on this machine. Raises LinkLost if the link breaks."""
        from torusrun.orchestrator.beside import proxy

        host, words = self.known.host, ["shell", self.id, *_beside(rank, role), "--proxy"]
        return proxy.joined(
            host.address,
            lambda key, streams: call.interact(host, [*words, f"--admit={key}"], terminal=False, streams=streams),
        )

    def forward(self, port: int | str, *, rank: int = 0, role: str = "", listen: str = "") -> int:
        """As in `Run`; the local port is on this machine. Raises LinkLost if the link breaks."""
        from torusrun.orchestrator.remote.tunnel import forward

        return forward(self.known, port, _beside(rank, role), listen)

    def wait_until_held(self) -> View:
        while not ((view := self.status()).state.over or view.reason.startswith(HELD)):
            clock.sleep(LOOKS_S)
        return view

    def collect(self, into: str | Path, *, checkpoints: str = "newest", only: str = "") -> Path:
        return collect(self.known, Path(into), checkpoints, patterns.parse_list(only))

    def _page(self) -> str:
        return page([self.known])


class SweepThere(OnLoginNode, Sweep):
    """A sweep on a login node."""

    @property
    def folder(self) -> SweepFolder:
        raise UserError(f"{self.id} is on {self.known.host.address}: `run.collect(FOLDER)` copies a member here")

    @property
    def folders(self) -> list[RunFolder]:
        raise UserError(f"{self.id} is on {self.known.host.address}: `run.collect(FOLDER)` copies a member here")

    @property
    def runs(self) -> list[Run]:
        return [RunThere(run) for run in remote_runs.members(self.known)]

    def status(self) -> list[View]:
        return status.views(remote_runs.members(self.known))

    def results(self) -> list[dict[str, float]]:
        return self._column("results", dict[str, float])

    def settings(self) -> list[dict[str, str]]:
        return self._column("settings", dict[str, str])

    def _column(self, name: str, kind: Any) -> list[Any]:
        """A column of the table of its members."""
        request = call.words("status", self.id, "--json", buffered=True)
        table = call.answer(self.known.host, request, dict[str, Any])
        rows = program.typed(self.known.host, tuple[dict[str, Any], ...], table.get("members"))
        return [program.typed(self.known.host, kind, row.get(name)) for row in rows]

    def cancel(self) -> None:
        act(self.known, "cancel")

    def _resume(self, made: Changes, force: bool) -> list[Run]:
        resumed = act(self.known, "resume", *_options(made, force), "--quiet").split()
        self.status()  # those that are known here as over are not
        return [run for run in self.runs if run.id in resumed]

    def _follow(self) -> Generator[list[View], None, None]:
        yield from follow(remote_runs.members(self.known))


def follow(runs: Sequence[Known]) -> Generator[list[View], None, None]:
    """The views of runs of one login node, now and whenever a while has passed, until all are over.

    A `watch` on the login node waits for their ends; it is started again when its link breaks.
    """
    views = status.views(runs)
    yield views
    while not all(view.state.over for view in views):
        request = call.words("watch", *(run.run for run in runs), "--json")
        try:
            call.captured(runs[0].host, request, limits=WaitLimits(answer_s=WATCHED_S))
        except LinkLost:
            clock.sleep(LOOKS_S)
        except BadAnswer:
            raise
        except Unanswered:  # they are not over yet
            pass
        views = status.views(runs)
        yield views


def act(known: Known, verb: str, *options: str) -> str:
    """Run a verb that changes a run, or a sweep, on its login node; what it prints. Raises the error that it reports.

    It is not repeated: if the link breaks, the error says how to see whether it was done.
    """
    try:
        ended = call.captured(known.host, call.words(verb, known.run, *options, buffered=True))
    except LinkLost as error:
        raise LinkLost(f"{error}; `torusrun status {known.run}` shows whether it was done") from None
    return call.checked(known.host, ended).out.decode(errors="replace")


def page(runs: Sequence[Known]) -> str:
    """The page about runs of one login node. Raises SiteError if it does not answer, or with another kind of page."""
    from torusrun.orchestrator.show.page.foreign import objection

    host = runs[0].host
    request = call.words("report", *(run.run for run in runs), "-o", "-", buffered=True)
    text = call.checked(host, call.captured(host, request)).out.decode(errors="replace")
    if other := objection(text):
        raise BadAnswer(f"{host.address}: its page has {other}, which no page of torusrun has; it is not kept")
    return text


def _beside(rank: int, role: str) -> list[str]:
    """The options that name a rank."""
    return [f"--rank={rank}", *([f"--role={role}"] if role else [])]


def _options(made: Changes, force: bool) -> list[str]:
    """The options of `resume`."""
    options = [f"--exclude={host}" for host in made.exclude] + (["--force"] if force else [])
    options += [] if made.time_s is None else [f"--time={DURATION.write(made.time_s)}"]
    options += [] if made.nodes is None else [f"--nodes={made.nodes}"]
    options += [] if made.memory_bytes is None else [f"--mem={made.memory_bytes}B"]
    return options + ([] if made.grid is None else [f"--grid={GRID.write(made.grid)}"])


def collect(run: Known, into: Path, checkpoints: str, only: Sequence[Pattern] = ()) -> Path:
    """Copy a run into the new folder `into`, whole or not at all; `checkpoints` and `only` as in upkeep/collect.py.

    Raises UserError if `into` exists or the patterns choose nothing, SiteError if the copy fails or there is no room
    for it: the same call then continues.
    """
    from torusrun.orchestrator.remote.fetch import fetch
    from torusrun.orchestrator.upkeep.collect import collecting

    with collecting(into, run.run) as partial:
        fetch(run, partial, checkpoints, only)
    return absolute(into)
