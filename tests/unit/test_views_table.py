"""The table of `status`: aligned columns that fit the terminal, whatever the runs are."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.shown.numbers import number
from torusrun.orchestrator.base.shown.table import EMPTY, Column, Long, Table
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import display_width, wrapped
from torusrun.orchestrator.run.state.pace import short
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show import listing as module
from torusrun.orchestrator.show.listing import COLUMNS

NAME = "digits-20261121-120000-a1b2"
KILLED = "rank 3 (node2, local rank 1) was killed by SIGKILL after step 57"
REASON = f"{KILLED}; `torusrun resume` continues from the newest checkpoint"


def view(run: str = NAME, state: State = State.RUNNING, reason: str = "", **known: object) -> View:
    empty = dict.fromkeys(("step", "total_steps", "images_per_s", "accuracy"))
    fixed = {"attempt": 1, "job": "4711", "scheduler": "slurm", "grid": (2, 2), "ranks": 4, "hosts": (), "folder": "/r"}
    return View(**{"run": run, "state": state, "reason": reason, "site": "abci-v", **fixed, **empty, **known})  # type: ignore[arg-type]


RUNNING = view(
    step=120, total_steps=450, loss=0.5, newest_result="loss", eta_s=190.0, age_s=3720.0,
    hosts=("g0001", "g0002", "g0003"),
)  # fmt: skip
PENDING = view(state=State.PENDING, reason="it waits for free nodes (Slurm: Resources)", age_s=59.0)
FAILED = view(state=State.FAILED, reason=REASON, step=57, total_steps=450, hosts=("node1", "node2"))
DAMAGED = view(state=State.UNKNOWN, reason="its folder does not say", damaged=("plan.json: it is missing", "x"))
DONE = view(
    state=State.COMPLETED, reason="all 4 ranks ended well", step=450, total_steps=450, loss=0.1, accuracy=0.972,
    newest_result="accuracy", hosts=("vm",),
)  # fmt: skip
ALL = [RUNNING, PENDING, FAILED, DAMAGED, DONE]
TITLES = [str(column.title) for column in COLUMNS]


def listing(views: list[View], width: int | None, *, long: bool = False) -> list[str]:
    return module.listing(views, long=long).lines(width)


def test_a_pipe_gets_every_column_uncut_and_one_line_for_a_run_in_order() -> None:
    assert listing([RUNNING, PENDING, FAILED, DONE], None) == [
        "RUN                          SITE    STATE        AGE     STEP  ETA  LOSS/ACC  WHERE",
        f"{NAME}  abci-v  RUNNING    1h02m  120/450   3m    0.5000  g[0001-0003]",
        f"{NAME}  abci-v  PENDING      59s        -    -         -  it waits for free nodes (Slurm: Resources)",
        f"{NAME}  abci-v  FAILED         -   57/450    -         -  {REASON}",
        f"{NAME}  abci-v  COMPLETED      -  450/450    -    97.20%  all 4 ranks ended well",
    ]


def test_a_terminal_of_80_columns() -> None:
    assert listing(ALL, 80) == [
        "RUN                          STATE        AGE     STEP  ETA  WHERE",
        f"{NAME}  RUNNING    1h02m  120/450   3m  g[0001-0003]",
        f"{NAME}  PENDING      59s        -    -  it waits for free…",
        "    it waits for free nodes (Slurm: Resources)", f"{NAME}  FAILED         -   57/450    -  node[1-2]",
        f"    {KILLED}; `torusrun", "    resume` continues from the newest checkpoint",
        f"{NAME}  UNKNOWN        -        -    -  its folder does no…", "    its folder does not say",
        "    damaged: plan.json: it is missing", "    damaged: x", f"{NAME}  COMPLETED      -  450/450    -  vm",
    ]  # fmt: skip


def test_columns_that_no_run_fills_are_left_out_on_a_terminal() -> None:
    assert listing([DONE], 80) == [
        "RUN                          SITE    STATE         STEP  LOSS/ACC  WHERE",
        f"{NAME}  abci-v  COMPLETED  450/450    97.20%  vm",
    ]


def test_a_long_name_is_never_cut_and_moves_no_other_column() -> None:
    long = "resnet50-imagenet-large-batch-20261121-120000-a1b2"
    shown = listing([view(long, step=7, hosts=("g1",)), RUNNING], 80)
    assert shown[1] == long and shown[2].split() == ["abci-v", "RUNNING", "-", "7", "-", "g1"]
    assert shown[2].index("RUNNING") == shown[3].index("RUNNING")


def test_values_without_a_column_are_long_and_a_loss_is_as_wide_from_step_to_step() -> None:
    submitted_s = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))
    shown = listing([view(state=State.FAILED, hosts=("g1", "g2"), submitted_s=submitted_s)], None, long=True)
    assert shown[2] == "    attempt 1, job 4711, submitted 2026-11-21 12:00, grid 2x2, on g[1-2], /r"
    assert [number(x) for x in (2.3, 0.5678912, 0.001, 0.0)] == ["2.3000", "0.5679", "0.0010", "0.0000"]
    assert [number(x) for x in (0.00012, 12345.6, -3e9)] == ["0.00012", "1.23e+04", "-3e+09"]


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0, "0s"), (59.4, "59s"), (59.7, "1m"), (3599, "59m"), (3720, "1h02m"), (86_400, "1d00h"), (9e7, "1041d")],
)  # fmt: skip
def test_a_time_in_a_column(seconds: float, says: str) -> None:
    assert short(seconds) == says


WORDS = st.text(st.characters(categories=("L", "N", "P", "S")), max_size=30)
TEXTS = st.lists(WORDS, max_size=9).map(" ".join)
NAMES = st.text("abc-1あ", min_size=1, max_size=60)
CELLS = st.sampled_from([EMPTY, "x", "RUNNING", "120/450", "日本"])
Row = tuple[str, ...]  # with the last column's Long and the notes at its end
ROWS = st.lists(
    st.tuples(
        NAMES,
        *[CELLS] * (len(COLUMNS) - 2),
        st.builds(Long, TEXTS, WORDS, st.booleans()),
        st.lists(TEXTS, max_size=2),
    ),
    min_size=1,
    max_size=6,
)


def lines(rows: list[Row], width: int | None) -> list[str]:
    """The rows in columns that are those of `status`, but for the values."""
    columns = [replace(column, value=itemgetter(n), show=str, style=lambda row: "") for n, column in enumerate(COLUMNS)]
    return Table(columns, rows, itemgetter(-1)).lines(width)  # type: ignore[arg-type]


@given(ROWS, st.integers(60, 160))
def test_every_line_fits_and_only_a_name_may_be_longer(rows: list[Row], width: int) -> None:
    names = {row[0] for row in rows}
    for line in lines(rows, width):
        assert display_width(line) <= width or line in names, line


@given(ROWS, st.none() | st.integers(60, 160))
def test_no_column_runs_into_another(rows: list[Row], width: int | None) -> None:
    """Every cell lies between the beginnings of its column and of the next, with a gap."""
    rows = [(*row[:-2], Long(row[-2].text), []) for row in rows]  # type: ignore[attr-defined,misc]
    head, *shown_rows = lines(rows, width)
    shown = [column for column in COLUMNS if str(column.title) in head.split()]
    ends = [head.index(title) + len(title) for title in TITLES if title in head.split()]
    for line in shown_rows:
        if line in {row[0] for row in rows}:
            continue
        at = _by_column(line)
        for column, end in zip(shown[:-1], ends, strict=False):
            if column.right:  # ends where its title does, and then there is a gap
                assert at.get(end - 1, "x") != " " and {at.get(end, " "), at.get(end + 1, " ")} == {" "}, (head, line)
    assert not any(str(column.title) not in head for column in COLUMNS if column.left_out is None)


@dataclass(frozen=True)
class Size:
    gpus: int
    took_s: float | None


SIZES: Table[Size] = Table(
    (
        Column("GPUs", lambda size: size.gpus, "{:,}".format, key="gpus"),
        Column("ms", lambda size: None if size.took_s is None else size.took_s * 1e3, "{:.2f}".format),
        Column("whose", lambda size: "ours", right=False),
        Column(None, lambda size: size.took_s, key="took_s"),
    ),
    [Size(4, 0.00123), Size(1024, None)],
    empty="",
)


def test_one_table_is_text_and_json() -> None:
    """Numbers are on the right; a column without a title is in JSON alone, one without a key in the text alone."""
    assert SIZES.lines() == [" GPUs    ms  whose", "    4  1.23  ours", "1,024        ours"]
    assert SIZES.as_json() == [{"gpus": 4, "took_s": 0.00123}, {"gpus": 1024, "took_s": None}]


def _by_column(line: str) -> dict[int, str]:
    """The character in each column of the terminal."""
    at, where = {}, 0
    for char in line:
        for _ in range(display_width(char)):
            at[where] = char
            where += 1
    return at


@given(st.lists(WORDS, max_size=20).map(" ".join), st.integers(6, 40))
def test_wrapping_loses_nothing_but_spaces(text: str, width: int) -> None:
    lines = list(wrapped(text, width))
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(display_width(line) <= width for line in lines)
