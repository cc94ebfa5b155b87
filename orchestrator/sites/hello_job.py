"""Doctor's job: a `command:` of a few seconds on two nodes; its ranks and this login node exchange files.

Its results: whether it ran, what the nodes saw, their clocks, and the keys of `node:`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.load import site_file
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.attempts.cancel import cancel
from torusrun.orchestrator.run.attempts.submit import first
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.sites import hello
from torusrun.orchestrator.sites.checks.check import Check, failed, ok, warning
from torusrun.training.counted import counted

LIMIT_S = 300.0
LOOK_S = 0.05
POLL_S = 1.0
ENDING_S = 60.0
SKEW_S, LARGE_SKEW_S = 2.0, 30.0


def checks(name: str, site: Site, wait_s: float) -> Iterator[Check]:
    """Submit the job, wait for its end, judge it, and remove its files."""
    folder = absolute(site.runs) / f".doctor-{secrets.token_hex(4)}"
    try:
        private.make(folder, site.umask)
        yield from _tried(name, site, folder, wait_s)
    except (TorusrunError, OSError) as error:
        yield failed("job", str(error), "fix what the message names, and try again")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(name: str, site: Site, folder: Path, wait_s: float) -> Iterator[Check]:
    nodes, limit_s = _size(site)
    talk = Talk(folder, secrets.token_hex(8))
    private.write_bytes(folder / "word", talk.word.encode())
    spec = folder / "doctor.yaml"
    private.write_bytes(spec, json.dumps(_spec(name, site, nodes, limit_s, folder)).encode())  # JSON is YAML
    run, judgement = first(plan(spec), folder), list[Check]()
    try:
        view = _wait(run, talk, nodes * site.node.ranks, wait_s)
        if view is None:
            why = f"it had not ended after {wait_s:g} s, and was cancelled: {views([run])[0].reason or 'it ran'}"
            judgement = [warning("job", why, "the queue may be busy: try again with --job 1h, or name another queue")]
        else:
            judgement = list(judged(site, nodes, talk, view, _log(run)))
    finally:
        is_gone = _removed(run)
    yield from judgement
    if not is_gone:
        mend = f"`torusrun cancel {run.run_id}`, once it answers"
        yield warning("job", f"run {run.run_id} is not over, and stays", mend)


def _size(site: Site) -> tuple[int, float]:
    """The (nodes, time limit in seconds) of the job: two nodes and a few minutes, or the queue's limits if lower."""
    if (asked := client.of(site)).scheduler.traits.one_machine:
        return 1, LIMIT_S
    try:
        queues = asked.describe().with_reserved
    except SiteError:
        return 2, LIMIT_S
    mine = [queue for queue in queues if queue.name == (site.queue or queue.name)]
    most = max((queue.nodes or queue.all_nodes or 2 for queue in mine), default=2)
    longest_s = max((queue.time_s or LIMIT_S for queue in mine), default=LIMIT_S)
    return min(2, most), min(LIMIT_S, longest_s)


def _spec(name: str, site: Site, nodes: int, limit_s: float, folder: Path) -> dict[str, Any]:
    return {
        "name": "doctor",
        "site": str(site_file(name).absolute()),
        "nodes": nodes,
        "time": f"{limit_s:g}s",
        "code": "none",
        "command": process.script(site.interpreter, hello.__file__, folder),
    }


def _wait(run: RunFolder, talk: Talk, ranks: int, wait_s: float) -> View | None:
    """The run's last view, or None if it takes longer than `wait_s`; answers the ranks meanwhile."""
    end_s, poll_s = time.monotonic() + wait_s, 0.0
    while True:
        talk.listen(ranks)
        if time.monotonic() >= poll_s:
            view = views([run])[0]
            if view.state.certain:
                talk.listen(ranks)
                return view
            poll_s = time.monotonic() + POLL_S
        if time.monotonic() > end_s:
            return None
        time.sleep(LOOK_S)


def _removed(run: RunFolder) -> bool:
    """End the run if it is not over, remove it from the index, and remove its folder; False if it does not end."""
    end_s = time.monotonic() + ENDING_S
    if not views([run])[0].state.over:
        with contextlib.suppress(TorusrunError):
            cancel(run)
    while not (is_over := views([run])[0].state.over) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    if is_over:
        index.forget(run)
    return is_over


def _log(run: RunFolder) -> str:
    """The last lines of the job's and its first rank's output, for a failure."""
    texts: list[str] = []
    attempt = run.attempt(1).folder
    for path in [*sorted(attempt.glob("**/*.log")), attempt / "job.err"]:
        try:
            texts += path.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        except OSError:
            continue
    return "; ".join(line.strip() for line in texts[-6:] if line.strip())


@dataclass
class Talk:
    """The ranks' messages by rank, and when this login node read and answered them."""

    folder: Path
    word: str
    hello: dict[int, dict[str, Any]] = field(default_factory=dict)
    answered_s: dict[int, float] = field(default_factory=dict)
    done: dict[int, dict[str, Any]] = field(default_factory=dict)

    def listen(self, ranks: int) -> None:
        """Read new messages, and answer them at once."""
        os.listdir(self.folder)  # makes NFS refresh the folder
        for rank in range(ranks):
            if rank not in self.hello and (message := _read(self.folder / f"rank-{rank}.json")):
                self.hello[rank], self.answered_s[rank] = message, time.time()
                private.write_bytes(self.folder / f"answer-{rank}", self.word.encode())
            if rank not in self.done and (message := _read(self.folder / f"done-{rank}.json")):
                self.done[rank] = message


def _read(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(SiteError):
        return read_object(path)
    return None


def judged(site: Site, nodes: int, talk: Talk, view: View, log: str) -> Iterator[Check]:
    ranks = nodes * site.node.ranks
    met = [message["met"] for message in talk.done.values() if message.get("met")]
    if view.state is State.COMPLETED:
        hosts = ", ".join(sorted({str(message["host"]) for message in talk.done.values()}))
        yield ok("job", f"{counted(ranks, 'rank')} on {counted(nodes, 'node')} ran and met ({hosts})")
    elif met:
        mend = "write node.interface into the site: the interface that connects the nodes"
        yield failed("job", f"the ranks did not reach each other: {met[0]}", mend)
    else:
        yield failed("job", f"{view.state.value}: {view.reason}{f' ({log})' if log else ''}", _mend(talk))
    if talk.hello:
        yield _shared(talk, ranks)
        yield _clocks(talk)
        yield from _nodes(site, talk)


def skew_s(asked_s: float, answered_s: float, seen_s: float) -> tuple[float, float]:
    """How far a node's clock is ahead of ours, and the largest error of that, both in seconds.

    The node wrote at `asked_s` and saw our answer at `seen_s`, by its clock; we answered at `answered_s`, by ours.
    """
    return (asked_s + seen_s) / 2 - answered_s, abs(seen_s - asked_s) / 2


def _mend(talk: Talk) -> str:
    if talk.hello:
        return "the reason says what to fix; `torusrun doctor` without --job checks the login node"
    return (
        "no rank began: check that the nodes have the Python and the folder of runs at the same paths, and that the "
        "launcher is there (modules of the site)"
    )


def _shared(talk: Talk, ranks: int) -> Check:
    """Whether the nodes and the login node saw each other's files while the job ran."""
    mend = "write runs: FOLDER into the site, on a file system that the nodes mount"
    if wrong := [rank for rank, message in talk.hello.items() if message.get("word") != talk.word]:
        return failed("shared files", f"rank {wrong[0]} read other content than this login node wrote", mend)
    if missing := sorted(set(range(ranks)) - set(talk.hello)):
        return failed("shared files", f"of {counted(ranks, 'rank')}, nothing of {len(missing)} was seen here", mend)
    if late := [rank for rank, message in talk.done.items() if message.get("answer") != talk.word]:
        mend = "if this happens again, write runs: FOLDER on a faster file system"
        return warning("shared files", f"rank {late[0]} did not see the answer in time", mend)
    return ok("shared files", "the nodes and this machine see each other's files")


def _clocks(talk: Talk) -> Check:
    clocks = [
        (*skew_s(float(talk.hello[rank]["time_s"]), talk.answered_s[rank], float(message["seen_s"])), message["host"])
        for rank, message in talk.done.items()
        if rank in talk.hello and message.get("answer") == talk.word
    ]
    if not clocks:
        return warning("clocks", "no rank saw an answer, so no clock was checked", "try again")
    ahead_s, error_s, host = max(clocks, key=lambda clock: abs(clock[0]) - clock[1])
    sure_s = abs(ahead_s) - error_s
    skew = f"{host} differs by {ahead_s:+.2f} s (uncertainty: {error_s:.2f} s)"
    mend = "ask the administrators to set the clocks of login node and nodes by NTP"
    if sure_s > LARGE_SKEW_S:
        return failed("clocks", skew, mend)
    return warning("clocks", skew, mend) if sure_s > SKEW_S else ok("clocks", skew)


def _nodes(site: Site, talk: Talk) -> Iterator[Check]:
    """The site's values of a node, compared with the nodes' reports."""
    for host, facts in {str(facts["host"]): facts for facts in talk.hello.values()}.items():
        if wrong := list(_differences(site, facts)):
            yield warning("node", f"{host}: {'; '.join(wrong)}", "correct these keys below node: of the site")
            return
    free = min(float(facts["scratch_free_bytes"]) for facts in talk.hello.values())
    first = next(iter(talk.hello.values()))
    yield ok("node", f"as the site says; {free / 2**30:.1f} GiB free in {first['scratch']}, Python {first['python']}")


def _differences(site: Site, facts: Mapping[str, Any]) -> Iterator[str]:
    node = site.node
    if node.interface and node.interface not in facts["interfaces"]:
        yield f"it has no interface {node.interface}, but {', '.join(facts['interfaces'])}"
    if missing := [name for name in node.hcas if name not in facts["adapters"]]:
        yield f"it has no adapter {missing[0]}, but {', '.join(facts['adapters']) or 'none'}"
    if node.gpus and 0 < facts["gpus"] < node.gpus:
        yield f"it has {counted(facts['gpus'], 'GPU')}, and not {node.gpus}"
