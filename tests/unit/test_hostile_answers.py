"""Whatever a login node answers to whatever is asked: a result that can be shown, or one error in words."""

import copy
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.bad_node import MARK, READY, argv
from tests.unit.conftest import leads
from tests.unit.far import HERE
from tests.unit.test_bad_login_nodes import FILE
from tests.unit.test_remote import VIEW
from tests.unit.test_remote_verbs import run_file  # noqa: F401
from tests.unit.test_watch_nodes import node
from tests.unit.test_watch_screen import DETAIL, drawn
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli import api, elsewhere
from torusrun.orchestrator.cli.handles_there import RunThere, SweepThere
from torusrun.orchestrator.remote import archive, call, of_file, remote_runs, status
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.folder.events import Started, Submitting
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.account import Account, account
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.listing import account_lines, listing
from torusrun.orchestrator.show.screen import pages
from torusrun.orchestrator.show.screen.detail import Detail

ACCOUNT = account([Submitting(1, "a-1", time_s=1.0), Started(1, "7", ("n1",), time_s=2.0)], [], 9.0, State.RUNNING)
MOST_PROGRAMS = 6
DETAILS = {**asdict(DETAIL), "nodes": [asdict(node(0)), asdict(node(1)), *map(asdict, DETAIL.nodes)]}
RIGHT: dict[str, Any] = {
    "status": {"schema": 1, "runs": [{**VIEW, "account": ACCOUNT.as_json(), "starts_s": 5.0}]},
    "show": {"run": "a-1", "code": {"commit": "c"}},
    "sweep": {"members": [{"settings": {"a": "1"}, "results": {"loss": 0.5}}]},
    "plan": "fits",
    "collect": [{**FILE, "name": "d", "kind": "folder"}, {**FILE, "name": "d/f"}],
    "folder": "/far",
    "submit": "asked-1",
    "resume": "a-1 resumes from step-3",
}
EVIL = [
    None, True, -1, 0, 10**30, 1e300, -1e300, 1e17, math.inf, math.nan, "", "\x1b[2J\n\r\t", "\ud800\0", "../../x",
    "9" * 50, [], {}, [[]], {"": 0}, [None], "x" * 5000, VIEW,
]  # fmt: skip
SEED = st.integers(0, 10_000)
DAMAGE = st.one_of(
    st.just(("right",)),
    st.tuples(st.just("header"), SEED, st.sampled_from(EVIL)),
    st.tuples(st.just("content"), SEED, st.sampled_from(EVIL)),
    st.tuples(st.just("content"), SEED, st.floats() | st.integers() | st.text()),
    st.tuples(
        st.just("raw"), st.text('01ab{}[]":,\n\\ue', max_size=40) | st.sampled_from(["[" * 9000 + "\n", "\xff\n"])
    ),
)


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is something in a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list | tuple) else ()
    return [above, *(place for key in keys for place in places(value[key], (*above, key)))]


def damaged(value: Any, seed: int, evil: Any) -> Any:
    """The value with something else, or nothing, in one place."""
    value = copy.deepcopy(value) if isinstance(value, str) else json.loads(json.dumps(value))
    place = places(value)[seed % len(places(value))]
    if not place:
        return evil
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    if seed % 7 == 0:
        del inner[place[-1]]
    else:
        inner[place[-1]] = evil
    return value


class Hostile:
    """Programs that answer requests as they should be, but for one kind of damage after the other."""

    def __init__(self, damage: list[Any], folder: Path) -> None:
        self.left, self.folder, self.programs = list(damage), folder, 0

    def argv(self, command: str) -> list[str]:
        if self.programs >= MOST_PROGRAMS:
            return ["sh", "-c", "exit 255"]
        self.programs += 1
        how, *values = self.left.pop(0) if self.left else ("right",)
        answers: dict[str, Any] = {what: READY + json.dumps(content) for what, content in RIGHT.items()}
        answers |= {"fetch": READY + "xyz", "logs": READY + "a line"}
        if how == "content":
            answers |= {what: READY + json.dumps(damaged(content, *values)) for what, content in RIGHT.items()}
        elif how == "header":
            first = damaged({"folder": "/far", "missing": False}, *values)
            answers = dict.fromkeys(answers, f"{MARK}{json.dumps(first)}\n")
        elif how == "raw":
            answers = dict.fromkeys(answers, str(values[0]))
        return argv(answers, self.folder)


def shown(view: View, detail: Detail | None = None) -> None:
    """Draw a view in every way, and see that it does nothing to a terminal."""
    lines = listing([view], long=True).lines(80) + listing([view], long=True).lines()
    lines += drawn([*pages.of_many([view], pages.Window(0, 5), 80)], 80)
    lines += drawn(pages.of_one(view, detail or Detail(), 80, 23), 80)
    lines += drawn([*pages.of_nodes(detail.nodes, pages.Window(0, 9), 80)[0]], 80) if detail else []
    assert all(char.isprintable() for line in lines for char in line)


def printed(found: Account) -> None:
    lines = [line for width in (80, None) for line in account_lines(found, width)]
    assert all(char.isprintable() for line in lines for char in line) and json.dumps(found.as_json())


CALLS: dict[str, Callable[[Known, Path], object]] = {
    "status": lambda run, _: shown(*status.views([run])),
    "metrics": lambda run, _: json.dumps(RunThere(run).metrics()),
    "account": lambda run, _: printed(RunThere(run).account()),
    "cancel": lambda run, _: RunThere(run).cancel(),
    "resume": lambda run, _: RunThere(run).resume(),
    "provenance": lambda run, _: RunThere(run).provenance(),
    "collect": lambda run, path: RunThere(run).collect(path.parent / "out"),
    "verb": lambda run, _: elsewhere.follow([run]),
    "settings": lambda run, _: SweepThere(run).settings(),
    "verb of a file": lambda _, path: of_file.run("plan", plan(str(path)), str(path), []),
    "submit": lambda _, path: api.submit(path),
}


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.lists(DAMAGE, max_size=6))
@example(damage=[])
@example(damage=[("content", 708, -120.0)])  # a step that comes before all others
def test_a_result_that_can_be_shown_or_one_error_in_words(
    name: str, damage: list[Any], run_file: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    hostile = Hostile(damage, run_file.parent / "bad")
    leads(monkeypatch, hostile.argv)
    monkeypatch.setattr(call, "WAITS_S", (0.0,))
    monkeypatch.setattr(call, "PATIENCE_S", -1.0)
    monkeypatch.setattr(archive, "packed", lambda: b"an archive")
    remote_runs.keep(run := Known("a-1", HERE, "far", 1000.0))
    try:
        CALLS[name](run, run_file)
    except TorusrunError as error:
        assert str(error).startswith(("nobody@nowhere", str(run_file.parent))), error
    shutil.rmtree(run_file.parent / "out", ignore_errors=True)
    assert not list(run_file.parent.glob(".torusrun-*"))
    for kept in remote_runs.runs():
        if kept.last:
            shown(status.unknown(kept, "it did not answer"))
        remote_runs.forget(kept.run)
