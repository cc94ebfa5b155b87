"""The full-screen `watch`: what it shows of many runs and of one, its keys, and a terminal that is left as it was."""

from __future__ import annotations

import io
import os
import pty
import signal
import termios
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from tests.unit.run_folders import make, write_specs
from tests.unit.terminals import Terminal, bare
from tests.unit.test_views_table import FAILED, NAME, PENDING, RUNNING, view
from tests.unit.test_views_watch import VIEWS
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.output import keys
from torusrun.orchestrator.base.terminal.plain import display_width
from torusrun.orchestrator.run.folder import allocation
from torusrun.orchestrator.run.folder.at_work import GpuLoad, NodeLoad, RankSteps
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.view import View, counts, ordered
from torusrun.orchestrator.show.screen import pages
from torusrun.orchestrator.show.screen.detail import Detail, Details, first_error, nodes
from torusrun.orchestrator.show.screen.nodes import NodeHeard
from torusrun.orchestrator.show.screen.pages import Window

FAST = replace(RUNNING, images_per_s=3264.2, accuracy=0.9472)
DONE = view(NAME, State.COMPLETED, reason="all 4 ranks ended well", step=450, total_steps=450, loss=0.1)
LOSSES = [(float(step), 2.0 / step) for step in range(1, 121)]
SIZES = st.none() | st.floats(0, 1e15)
ERROR = ("rank 3 (node2, local rank 1) ended with exit code 1", "Traceback", "  line", "ValueError: it broke")
DETAIL = Detail(
    LOSSES,
    [NodeHeard("node2", [2, 3], 42.0, None), NodeHeard("node1", [0, 1], 1.0, 0.0)],
    ERROR,
    [f"epoch {n}" for n in range(20)],
)


def drawn(lines: list[RenderableType], width: int) -> list[str]:
    file = io.StringIO()
    console = Console(width=width, height=24, force_terminal=True, file=file, color_system="standard")
    for line in lines:
        console.print(line)
    return bare(file.getvalue()).splitlines()


def of_one(shown: View, detail: Detail, width: int = 80, height: int = 23) -> list[str]:
    return drawn(pages.of_one(shown, detail, width, height), width)


def test_many_runs_at_80_columns() -> None:
    shown = drawn([*pages.of_many(ordered([DONE, PENDING, FAST, FAILED]), Window(0, 21), 80)], 80)
    assert shown[0] == "4 runs: 1 RUNNING, 1 FAILED, 1 PENDING, 1 COMPLETED"
    assert shown[1].split() == ["RUN", "STATE", "STEP", "LOSS/ACC", "ETA", "WHERE"]
    assert [line.split()[1] for line in shown[2:]] == ["RUNNING", "FAILED", "PENDING", "COMPLETED"]
    assert shown[2].split()[2:4] == ["120/450", "0.5000"]


def test_a_state_has_its_colour_and_the_selected_row_is_reversed() -> None:
    _, titles, running, failed = pages.of_many([FAST, FAILED], Window(0, 5, 1), 80)
    styles = [
        [(line.plain[span.start : span.end].strip(), span.style) for span in line.spans] for line in (running, failed)
    ]
    assert styles == [[("RUNNING", "cyan")], [("FAILED", "red"), (failed.plain, "reverse")]]
    assert [span.style for span in titles.spans] == ["dim"]


def test_more_runs_than_rows_are_counted_and_scrolled() -> None:
    views = [replace(FAST, run=f"run-{n:04d}") for n in range(1000)]
    assert counts(views) == "1,000 runs: 1,000 RUNNING"
    lines = drawn([*pages.of_many(views, Window(500, 21), 80)], 80)
    assert len(lines) == 23 and lines[2].startswith("run-0500") and lines[-1].startswith("run-0520")


@given(st.lists(VIEWS, min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 40), st.integers(1, 160))
def test_every_row_fits(views: list[View], top: int, rows: int, width: int) -> None:
    lines = pages.of_many(ordered(views), Window(top, rows, 0), width)
    assert len(lines) <= rows + 2
    for line in lines:
        assert "\n" not in line.plain and display_width(line.plain) <= width


@given(st.integers(-5, 50), st.none() | st.integers(0, 39), st.integers(1, 30), st.integers(1, 40))
def test_the_selected_row_is_always_shown(top: int, selected: int | None, rows: int, of_all: int) -> None:
    selected = None if selected is None else min(selected, of_all - 1)
    window = Window(top, 5).around(selected, rows, of_all)
    assert 0 <= window.top <= max(of_all - rows, 0)
    assert selected is None or window.top <= selected < window.top + rows


def test_one_run_at_80_x_24() -> None:
    shown = of_one(FAST, DETAIL)
    assert shown[0].startswith(f"{NAME} RUNNING ━━━") and shown[0].endswith("step 120/450")
    assert "3,264 images/s" in shown[2] and "accuracy 94.72%" in shown[2]
    assert shown[3:8] == ["first error", *(f"  {line}" for line in ERROR)]
    assert shown[8:10] == ["NODE   HEARD", "node2  42s ago, ranks 2, 3"]
    assert shown[10] == "node1  1s ago, wrote 0s ago, ranks 0, 1"
    assert shown[11].startswith("   2.0000 █") and "step 1 " in "".join(shown)
    assert shown[-1] == "  epoch 19" and "log of rank 0" in shown


def head(shown: View, width: int) -> str:
    return of_one(shown, Detail(), width)[0]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, f"{NAME} RUNNING {'━' * 10}╸{'━' * 29} step 120/450"),
        (80, f"{NAME} RUNNING {'━' * 8}╺{'━' * 22} step 120/450"),
        (40, "RUNNING ━━━━━╺━━━━━━━━━━━━━ step 120/450"),
    ],
)
def test_the_head_keeps_state_bar_and_step(width: int, shown: str) -> None:
    line = head(FAST, width)
    assert len(line) == len(shown) and line.startswith(shown.partition("━")[0]) and line.endswith(" step 120/450")
    steps = [head(replace(FAST, step=step), width) for step in (9, 99, 449)]
    assert len({sum(text.count(mark) for mark in "━╸╺") for text in steps}) == 1 and "step   9/450" in steps[0]


def test_without_a_number_of_steps_there_is_no_bar() -> None:
    assert head(replace(FAST, total_steps=None), 80) == f"{NAME} RUNNING step 120"
    assert head(replace(FAST, step=None), 80) == f"{NAME} RUNNING"


def test_a_run_of_many_nodes_shows_as_many_as_fit() -> None:
    many_nodes = [NodeHeard(f"node{n}", [n], 60.0 - n, 1.0) for n in range(50)]
    shown = of_one(FAST, Detail(nodes=many_nodes))
    assert "node0  1m ago, wrote 1s ago, rank 0" in shown and "and 46 more" in shown


LOADS = st.none() | st.builds(
    NodeLoad, st.just(1e9), st.just(5.0), st.integers(1, 256), st.none() | st.floats(0, 1), SIZES, SIZES,
    st.lists(st.builds(GpuLoad, st.just(0), st.none() | st.floats(0, 1), SIZES, SIZES, SIZES), max_size=2).map(tuple),
    st.lists(st.builds(RankSteps, st.integers(0, 1), st.floats(0, 1e10), st.integers(0, 10**9), st.floats(0, 1e6),
                       st.floats(0, 1e6), st.none() | st.floats(0, 1)), max_size=2).map(tuple),
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(["", "a line", "x" * 200, "日本" * 50]), max_size=30)
DETAILS = st.builds(
    Detail,
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e14, 1e14)), max_size=30).map(sorted),
    st.lists(st.builds(NodeHeard, st.text("node1", min_size=1), st.just([0, 1]), st.none() | st.floats(0, 1e6),
                       st.none() | st.floats(0, 1e6), LOADS), max_size=10),
    TEXTS, TEXTS,
)  # fmt: skip


@given(VIEWS, DETAILS, st.integers(1, 160), st.integers(1, 60), st.booleans())
def test_one_run_fits_every_terminal(shown: View, detail: Detail, width: int, height: int, blocks: bool) -> None:
    lines = pages.of_one(shown, detail, width, height, blocks=blocks)
    assert len(lines) <= height
    for line in drawn(lines, width):
        assert display_width(line) <= width
    assert len(drawn(lines, width)) == len(lines)


@given(DETAILS, st.integers(0, 20), st.integers(1, 160), st.integers(1, 20))
def test_the_page_of_nodes_fits_every_terminal(detail: Detail, top: int, width: int, rows: int) -> None:
    shown, of_all = pages.of_nodes(detail.nodes, Window(top, rows), width)
    assert len(shown) <= rows + 2 and all(display_width(line.plain) <= width for line in shown)
    assert of_all >= len(detail.nodes)


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), End(State.FAILED, "rank 1 ended with exit code 1"))


def test_details_of_a_run_that_failed(run: RunFolder) -> None:
    attempt = run.attempt(1)
    traceback = "Traceback (most recent call last):\n  f(x)\n  ~^^^\nValueError: it broke\n"
    attempt.rank_log(1).write_text(f"epoch 1\n{traceback}")
    RankEnd(2, "here", 2, 20.0, exit_code=69).write(attempt.rank_end(2))
    RankEnd(1, "here", 1, 10.0, exit_code=1).write(attempt.rank_end(1))
    detail = Details(run).look(replace(FAILED, attempt=1))
    assert detail.error == [
        "rank 1 (here, local rank 1) ended with exit code 1",
        "Traceback (most recent call last):",
        "  f(x)",
        "ValueError: it broke",
    ]
    assert detail.losses[0] == (1.0, 1.0) and len(detail.losses) == 40
    assert detail.log == ["a line of rank 0", "another"] and not detail.nodes


def test_a_traceback_of_the_job_where_no_rank_says_more(run: RunFolder) -> None:
    run.attempt(1).stderr.write_text("Traceback (most recent call last):\nOSError: x\n")
    assert first_error(run, 1)[-1] == "OSError: x"
    assert first_error(run, 7) == []


def test_nodes_are_those_of_the_placement_with_their_signs_of_life(run: RunFolder) -> None:
    attempt = run.attempt(1)
    for rank in range(4):
        os.utime(attempt.rank_start(rank), (1000.0 - rank,) * 2)
        os.utime(attempt.rank_log(rank), (900.0 + rank,) * 2)
    assert nodes(attempt, 1010.0) == [NodeHeard("here", [0, 1, 2, 3], 10.0, 107.0)]
    for rank in range(4):
        attempt.rank_start(rank).unlink()
        attempt.rank_log(rank).write_text("")
    assert nodes(attempt, 1010.0) == [NodeHeard("here", [0, 1, 2, 3], None, None)]


def test_a_held_allocation_shows_the_keepers_own_node(running: RunFolder) -> None:
    allocation.make(running, 60.0)
    held = replace(RUNNING, attempt=1)
    for rank in range(4):
        os.utime(running.attempt(1).rank_start(rank), (2000.0,) * 2)
    assert Details(running).look(held).nodes == [], "its ranks have ended long ago"
    NodeLoad(1000.0, 5.0, 2, 0.1).write(running.attempt(1).node_load(0))
    (node,) = Details(running).look(held).nodes
    assert node.load and node.load.cores == 2


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input; where to write what a user types."""
    mine, theirs = pty.openpty()
    with os.fdopen(theirs) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        yield mine
    os.close(mine)


def test_keys_have_names_and_others_are_passed_over(keyboard: int) -> None:
    before = termios.tcgetattr(keyboard)
    with keys() as pressed:
        assert termios.tcgetattr(keyboard) != before and pressed.within(0.0) == []
        os.write(keyboard, b"\x1b[A\x1bOBjkz\x1b[99~\xc3\xa4\r\x1b[6~\x1bq")
        assert pressed.within(5.0) == ["up", "down", "down", "up", "enter", "page down", "back", "quit"]
    assert termios.tcgetattr(keyboard) == before


WATCH = """
import sys
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.base.states import State, Status
Client.poll = lambda self, jobs: {job: Status(State.RUNNING) for job in jobs}
from torusrun.orchestrator.cli.main import main
sys.exit(main(["watch", *sys.argv[1:]]))
"""


@pytest.fixture
def running(run: RunFolder) -> RunFolder:
    lines = run.ledger.read_text().splitlines(keepends=True)
    run.ledger.write_text("".join(lines[:3]))
    run.attempt(1).end.unlink()
    for path in run.attempt(1).ranks.glob("*.end.json"):
        path.unlink()
    return run


def test_a_key_shows_all_nodes_and_their_ranks(running: RunFolder) -> None:
    load = NodeLoad(1000.0, 5.0, 4, 0.5, ranks=tuple(RankSteps(rank, 999.0, 120, 0.5, 0.7, 0.25) for rank in range(4)))
    load.write(running.attempt(1).node_load(0))
    with Terminal(WATCH, "last") as terminal:
        at = terminal.until("n all nodes and ranks")
        assert any(line.startswith("here") and "0.500" in line and "0.375" in line for line in terminal.frame)
        assert not any("rank 3" in line for line in terminal.frame)
        terminal.press("n")
        at = terminal.until("rows 1-5 of 5", at)
        terminal.until_shown("1 node")
        assert [line.split()[:2] for line in terminal.frame[4:8]] == [["rank", str(rank)] for rank in range(4)]
        terminal.resize(80, 8)
        at = terminal.until("rows 1-4 of 5", at)
        terminal.press("G")
        at = terminal.until("rows 2-5 of 5", at)
        terminal.press("n")
        terminal.until("n all nodes and ranks", at)
        terminal.press("q")
        assert terminal.ended() == 1 and terminal.restored


@pytest.mark.parametrize(
    ("leave", "code", "table"),
    [("q", 1, True), ("\x03", 130, True), (signal.SIGTERM, 143, False), (signal.SIGHUP, 129, False)],
    ids=["q", "ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_however_it_is_left_the_terminal_is_as_before(
    leave: str | signal.Signals, code: int, table: bool, running: RunFolder
) -> None:
    with Terminal(WATCH, "last") as terminal:
        terminal.until("q leaves")
        assert terminal.frame[0].startswith(f"{running.run_id} RUNNING ━━━") and len(terminal.frame) == 24
        terminal.signal(leave) if isinstance(leave, signal.Signals) else terminal.press(leave)
        assert terminal.ended() == code and terminal.restored
        after = terminal.written.partition("\x1b[?1049l")[2]
        assert ("state        RUNNING" in bare(after)) == table


def test_a_view_cannot_be_suspended(running: RunFolder) -> None:
    with Terminal(WATCH, "last") as terminal:
        terminal.until("q leaves")
        terminal.press("\x1aq")
        assert terminal.ended() == 1 and terminal.restored


def test_a_defect_leaves_the_terminal_as_before(running: RunFolder) -> None:
    broken = WATCH.replace(
        "import sys", "import sys\nfrom torusrun.orchestrator.show.screen import pages\npages.of_one = None", 1
    )
    with Terminal(broken, "last") as terminal:
        assert terminal.ended() == 3 and terminal.restored
        assert "torusrun: " in bare(terminal.written).splitlines()[-1]


def test_the_end_of_the_run_ends_the_view(running: RunFolder) -> None:
    with Terminal(WATCH) as terminal:
        terminal.until("q leaves")
        End(State.COMPLETED, "all 4 ranks ended well").write(running.attempt(1).end)
        assert terminal.ended() == 0 and terminal.restored
        assert "state        COMPLETED: all 4 ranks ended well" in bare(terminal.written)


def test_a_run_is_chosen_by_keys_and_the_screen_follows_its_terminal(running: RunFolder, home: Path) -> None:
    done = make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well"))
    with Terminal(WATCH, "*") as terminal:
        at = terminal.until("rows 1-2 of 2")
        assert [line.split()[0] for line in terminal.frame[1:4]] == ["RUN", running.run_id, done.run_id]
        terminal.press("jj\r")
        at = terminal.until("esc all runs", at)
        assert terminal.frame[0].startswith(f"{done.run_id} COMPLETED")
        terminal.resize(40, 10)
        at = terminal.until("q leaves", at)
        terminal.press("\x1b")
        terminal.until("RUN ", at)
        terminal.press("q")
        assert terminal.ended() == 1
        assert len(terminal.frame) == 10 and max(map(len, terminal.frame)) <= 40
        assert "1 RUNNING, 1 COMPLETED" in terminal.frame[0]
