"""A role that judges each checkpoint: which comes next, what is judged once, and what becomes of its numbers."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.clock import Clock
from tests.unit.test_roles import planned, refused
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job.relay import Relay
from torusrun.orchestrator.job.services import Services, sources
from torusrun.orchestrator.job.verdict import Evidence, verdict
from torusrun.orchestrator.keys.main_role import awaited
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import Placement, place
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.judged import SETTLED_S, CompleteCheckpoint, ToJudge, judged_so_far, kept
from torusrun.orchestrator.run.folder.records import Meaning, RankEnd, is_done
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.roles import with_services
from torusrun.orchestrator.run.program.what_runs import Program
from torusrun.orchestrator.run.state.account import account
from torusrun.orchestrator.show.exported import table
from torusrun.training.checkpoint import manifest, store
from torusrun.training.progress import Progress

JUDGED_BY = "roles: {evaluate: {each: checkpoint, command: [judge], metrics: {pattern: 'acc (?P<accuracy>\\S+)'}}}\n"


class Folder:
    """A folder of checkpoints, and the queue of a role by a clock of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.record, self.clock = folder / "kept", folder / "judged.json", Clock()
        self.folder.mkdir()
        self.changed_s = 1e9

    def add(self, name: str, content: str = "x", into: str = "") -> None:
        path = self.folder / name / into
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        self.changed_s += 1
        os.utime(self.folder / name, (self.changed_s, self.changed_s))

    def ours(self, step: int, content: bytes = b"state") -> Path:
        path = self.folder / manifest.name_of(step)
        path.mkdir()
        (path / manifest.STATE).write_bytes(content)
        listing = manifest.compose(Progress(step, step), 1.0, 1, {manifest.STATE: content})
        (path / manifest.MANIFEST).write_text(json.dumps(listing))
        return path

    def queue(self, newest: bool = False) -> ToJudge:
        return ToJudge(self.folder, self.record, newest=newest, clock=self.clock.monotonic)

    def all(self, newest: bool = False) -> list[str]:
        """The names of all checkpoints that a new queue judges now, in its order."""
        queue, names = self.queue(newest), []
        while found := queue.next(over=True):
            queue.judged(found)
            names.append(found.path.name)
        return names


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_checkpoints_are_judged_in_the_order_of_their_steps_or_else_of_time(folder: Folder) -> None:
    for name in ("checkpoint-20", "checkpoint-100", "checkpoint-3"):
        folder.add(name, into="model")
    assert folder.all() == ["checkpoint-3", "checkpoint-20", "checkpoint-100"]
    folder.add("last.pt")
    folder.add("checkpoint-2")
    assert folder.all() == ["last.pt", "checkpoint-2"]


def test_each_is_judged_once_also_by_a_later_attempt_until_it_is_replaced(folder: Folder) -> None:
    folder.add("last.pt")
    folder.add("step-1", into="model")
    assert len(folder.all()) == 2 and folder.all() == []
    folder.add("step-1", into="results.json")  # what judged it may write into it
    assert folder.all() == []
    folder.add("last.pt", "y")
    assert folder.all() == ["last.pt"]
    queue = folder.queue()
    folder.add("step-2")
    assert queue.next(over=True) == queue.next(over=True)  # chosen, not judged


def test_the_newest_first_skips_those_that_it_passed_over(folder: Folder) -> None:
    for step in (1, 2, 3):
        folder.add(f"step-{step}")
    queue = folder.queue(newest=True)
    found = queue.next(over=True)
    assert found and found.path.name == "step-3"
    folder.add("step-4")
    queue.judged(found)
    assert folder.all(newest=True) == ["step-4"] and folder.all() == []


def test_a_checkpoint_is_complete_once_it_has_not_changed_for_a_while(folder: Folder) -> None:
    folder.add("step-1", into="a")
    queue = folder.queue()
    assert queue.next() is None
    folder.clock.sleep(SETTLED_S - 1)
    folder.add("step-1", into="b")
    assert queue.next() is None
    folder.clock.sleep(SETTLED_S - 1)
    assert queue.next() is None
    folder.clock.sleep(1)
    assert queue.next() == CompleteCheckpoint(
        folder.folder / "step-1", str((folder.folder / "step-1").stat().st_ino), 1
    )


def test_one_with_a_manifest_is_complete_at_once_or_never(folder: Folder) -> None:
    path = folder.ours(7)
    found = folder.queue().next()
    assert found and (found.path, found.step) == (path, 7)
    (path / manifest.STATE).write_bytes(b"cut")
    assert folder.queue().next(over=True) is None


def test_what_only_names_a_checkpoint_is_none(folder: Folder) -> None:
    folder.add("global_step5", into="model")
    folder.add("latest", "global_step5\n")
    (folder.folder / "newest").symlink_to("global_step5")
    folder.add("step-6.tmp")
    assert folder.all() == ["global_step5"]


def test_a_checkpoint_that_is_judged_is_not_removed(folder: Folder) -> None:
    for step in (1, 2, 3):
        folder.ours(step)
    order = store.Order(str(folder.folder), 1, 4, 4, 1.0, None, [3], {})
    queue = folder.queue()
    found = queue.next()
    assert found
    with kept(found) as stays:
        assert stays
        store._prune(folder.folder, order)
        assert [path.name for path in manifest.candidates(folder.folder)] == [manifest.name_of(3), manifest.name_of(1)]
    store._prune(folder.folder, order)
    assert not found.path.exists()
    with kept(found) as stays:
        assert not stays


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{b: {each: checkpoint, command: [y], ready: {tcp: true}}}", "leave out 'ready' and 'alive'"),
        ("{b: {newest: true, command: [y]}}", "'roles.b.newest' needs 'each: checkpoint'"),
        ("{b: {each: checkpoint, command: [y]}, c: {command: [z], after: [b]}}", "'b' is never ready"),
        ("{b: {each: checkpoint, command: [y], metrics: {pattern: '(?P<acuracy>.)'}}}", "'accuracy'"),
        ("{b: {each: epoch, command: [y]}}", "roles.b.each"),
        ("{}\neach: checkpoint of x\nhang_timeout: 1h", "'each' needs a 'command'"),
        ("{}\nnewest: true", "'newest' needs 'each: checkpoint of RUN'"),
        ("{}\neach: epochs of x", "is not checkpoints of a run"),
        ("{a: {main: true, each: checkpoint, command: [x]}}", "'roles.a.each' is a key of services"),
    ],
)  # fmt: skip
def test_keys_that_do_not_fit_are_refused(tmp_path: Path, text: str, words: str) -> None:
    own = "" if "main: true" in text else "\ncommand: [x]"
    assert words in refused(tmp_path, f"roles: {text}{own}\n")


@pytest.fixture
def made(tmp_path: Path) -> tuple[Plan, RunFolder, Placement]:
    made = planned(tmp_path, f"command: [x]\nranks_per_node: 1\n{JUDGED_BY}")
    run = RunFolder(tmp_path / "run")
    for path in (run.attempt(1).roles, run.attempt(1).logs):
        path.mkdir(parents=True)
    return made, run, with_services(made.run, made.site, place(Grid((1, 1)), ["a"], 1), ["a", "b"])


def end(rank: int, meaning: Meaning = Meaning.DONE, **more: Any) -> RankEnd:
    return RankEnd(rank, "a", 0, 5.0, 0, meaning=meaning, **more)


def test_the_rest_is_judged_once_the_main_role_is_done(made: tuple[Plan, RunFolder, Placement]) -> None:
    plan, run, placement = made
    assert awaited(plan.run) == {"main": (), "evaluate": ("main",)}
    services = Services(plan, run.attempt(1), placement)
    services.look({})
    assert not run.attempt(1).roles_over.exists() and not services.main_ended({})
    services.look({0: end(0)})
    assert read_object(run.attempt(1).roles_over) == {"roles": ["evaluate"], "stop": False}
    assert services.main_ended({0: end(0)})
    services.look({0: end(0)}, stop=True)
    assert (read_object(run.attempt(1).roles_over) or {})["stop"] is True


@pytest.mark.parametrize(
    ("state", "since_s", "alive", "waits"),
    [
        ("waiting", 30.0, False, True),
        ("waiting", 90.0, False, False),  # its host is gone, most likely
        ("ready", 30.0, True, False),
        ("silent", 30.0, True, True),
        ("silent", 30.0, False, False),
        ("late", 30.0, True, False),
    ],
)
def test_the_main_role_may_wait_for_a_service_only_while_that_has_a_limit(
    tmp_path: Path, state: str, since_s: float, alive: bool, waits: bool
) -> None:
    service = f"{{command: [serve], ready: {{tcp: true}}, alive: {str(alive).lower()}}}"
    made, attempt = planned(tmp_path, f"command: [x]\nroles: {{server: {service}}}\n"), RunFolder(tmp_path).attempt(1)
    attempt.roles.mkdir(parents=True)
    placement = with_services(made.run, made.site, place(Grid((4, 1)), ["a"], 4), ["a", "b"])
    services = Services(made, attempt, placement)
    assert not services.awaited()
    write_json(attempt.role_state("server"), {"state": state, "t": time.time() - since_s, "within_s": 60.0})
    assert services.awaited() == waits


def test_nothing_is_judged_any_more_once_the_main_role_has_failed(made: tuple[Plan, RunFolder, Placement]) -> None:
    plan, run, placement = made
    Services(plan, run.attempt(1), placement).look({0: end(0, Meaning.LATER)})
    assert (read_object(run.attempt(1).roles_over) or {})["stop"] is True


def test_a_run_is_done_once_its_checkpoints_are_judged(made: tuple[Plan, RunFolder, Placement]) -> None:
    plan, run, placement = made

    def state(*ends: RankEnd) -> State:
        known = {"judges": (1,), "needs_record": False, "launcher_code": 1}
        return verdict(Evidence(placement, {each.rank: each for each in ends}, **known), None).state

    assert state(end(0), end(1, told=True)) is State.COMPLETED
    assert state(end(0), end(1, Meaning.FAILED)) is State.FAILED
    assert state(end(0), end(1, Meaning.LATER, told=True)) is not State.COMPLETED
    attempt = run.attempt(1)
    write_json(attempt.done, {"attempt": 1})
    assert is_done(attempt)
    write_json(attempt.role_state("evaluate"), {"state": "judging"})
    assert not is_done(attempt)
    write_json(attempt.role_state("evaluate"), {"state": "judged"})
    assert is_done(attempt)


def test_to_judge_another_checkpoint_is_progress(made: tuple[Plan, RunFolder, Placement], folder: Folder) -> None:
    _, run, _ = made
    assert judged_so_far(run) == ""
    folder.add("step-1")
    folder.add("step-2")
    queue, seen = ToJudge(folder.folder, run.judged("evaluate")), {""}
    while found := queue.next(over=True):
        queue.judged(found)
        seen.add(judged_so_far(run))
    assert len(seen) == 3


def test_the_numbers_of_services_join_those_of_the_run(made: tuple[Plan, RunFolder, Placement]) -> None:
    plan, run, placement = made
    attempt = run.attempt(1)
    reading = Relay(Program(("x",)), run, attempt, services=sources(plan.run, attempt, placement))
    lines = [
        {"step": 10},
        {"accuracy": 0.5, "step_s": 2},
        {"step": 20},
        {"accuracy": 0.75},
        {"step": None},
        {"loss": 1},
    ]
    attempt.role_metrics("evaluate").write_text("\n\n".join(map(json.dumps, lines)))
    attempt.rank_log(1).write_text("acc 0.1\ntorusrun: checkpoint /x/step-30, step 30\nacc 0.9\n")
    run.metrics.write_text(json.dumps({"t": 1.0, "attempt": 1, "event": "step", "step": 35, "loss": 1.0}) + "\n")
    before = run.metrics.stat().st_size
    reading.pass_on(final=True)
    rows = [row for row in metrics.read(run.metrics) if row["event"] == "role"]
    shown = [(row.get("step"), {name: row[name] for name in row if "/" in name}) for row in rows]
    assert shown == [
        (10, {"evaluate/accuracy": 0.5, "evaluate/step_s": 2}),
        (20, {"evaluate/accuracy": 0.75}),
        (None, {"evaluate/loss": 1}),
        (None, {"evaluate/accuracy": 0.1}),
        (30, {"evaluate/accuracy": 0.9}),
    ]
    assert reading.of_services_bytes == run.metrics.stat().st_size - before
    exported = table("x", metrics.read(run.metrics))
    assert [row["step"] for row in exported.rows] == [10, 20, 30, 35] and "evaluate/accuracy" in exported.columns


def test_an_old_checkpoint_that_is_judged_takes_no_steps_back() -> None:
    steps = [{"t": 100.0 + n, "attempt": 1, "event": "step", "step": n, "loss": 1.0} for n in range(5)]
    role = {"t": 104.5, "attempt": 2, "event": "role", "role": "e", "step": 1, "e/accuracy": 0.5}
    later = [{"t": 106.0, "attempt": 2, "event": "step", "step": 5, "loss": 0.5}]
    assert [row["step"] for row in table("x", [*steps, role, *later]).rows] == [0, 1, 1, 2, 3, 4, 5]
    with_role = account([], [*steps, role, *later], 110.0, State.COMPLETED)
    assert with_role == account([], [*steps, *later], 110.0, State.COMPLETED)
