"""What files say cannot act on the terminal that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.cli.main import VERBS, main
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.show.screen.pages import Window
from torusrun.training.counted import all_of, counted
from torusrun.training.recipe.key import key_of
from torusrun.training.recipe.near import did_you_mean, edits, nearest

EVIL = (
    "rank 1 said: [/foo] [red]:boom: \x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202egnp.exe\nmade-0000  COMPLETED\ttrust me"
)
FORBIDDEN = set("\x1b\x07\r\x9b\x7f\u202e")


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), End(State.FAILED, EVIL))


def test_control_characters_are_written_out_and_lines_stay_one() -> None:
    assert plain("a\x1b[31mb\x07c\x9bd\x7f") == r"a\x1b[31mb\x07c\x9bd\x7f"
    assert plain("one\ntwo\r\nthree\u2028four\x85five\n") == "one / two / three / four / five"
    assert plain("a\tb \ud800 \u202e 日本 é") == r"a b \ud800 \u202e 日本 é"


@pytest.mark.parametrize("verb", ["status", "watch", "cancel"])
def test_a_reason_does_nothing_to_the_terminal(verb: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    main([verb, run.run_id])
    said = capsys.readouterr()
    shown = said.out + said.err
    assert "[/foo] [red]:boom:" in shown.replace("\n", " ") and not FORBIDDEN & set(shown)
    assert not any(line.startswith("made-0000") for line in shown.splitlines() if verb != "cancel")


def test_a_reason_is_one_line_as_text_and_as_json(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Reasons come from hooks, comments and error messages, and hold what those hold."""
    main(["status", run.run_id, "--json"])
    shown = capsys.readouterr().out
    (reason,) = [view["reason"] for view in json.loads(shown)["runs"]]
    assert reason == plain(EVIL) and "\n" not in reason and not FORBIDDEN & set(shown)
    main(["status", run.run_id])
    _, line = capsys.readouterr().out.splitlines()
    assert line.endswith(f"  {reason}")


# Suggestions for misspelt words: near ones, and no others.


KEYS = [key_of(field) for field in RunSpec.__dataclass_fields__.values()]
SITES = ["abci-a", "abci-h", "abci-v", "local", "slurm", "slurm-v100", "tsubame4"]


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [("", "", 0), ("", "abc", 3), ("nodes", "noodes", 1), ("sdg", "sgd", 1), ("kitten", "sitting", 3), ("ab", "ba", 1)],
)
def test_edits_are_counted(one: str, other: str, count: int) -> None:
    assert edits(one, other) == edits(other, one) == count


@pytest.mark.parametrize(
    ("word", "valid", "meant"),
    [
        ("comand", KEYS, "command"), ("ranks-per-node", KEYS, "ranks_per_node"), ("Nodes", KEYS, "nodes"),
        ("chekpoint", KEYS, "checkpoints"), ("abci", SITES, "abci-a"), ("slrum", SITES, "slurm"),
        ("submti", list(VERBS), "submit"), ("resubmit", list(VERBS), "submit"), ("log", list(VERBS), "logs"),
        ("blob", ["Blobs", "blobs"], "blobs"),
    ],
)  # fmt: skip
def test_a_near_word_is_suggested(word: str, valid: list[str], meant: str) -> None:
    assert nearest(word, valid) == meant


@pytest.mark.parametrize(
    ("word", "valid"),
    [
        ("model", KEYS), ("epochs", KEYS), ("gpus", KEYS), ("memory", KEYS), ("image_name", KEYS), ("lr", KEYS),
        ("", KEYS), ("cluster", SITES), ("start", list(VERBS)), ("delete", list(VERBS)), ("stop", list(VERBS)),
        ("x" * 9999, KEYS), ("command", ["command"]),
    ],
)  # fmt: skip
def test_a_far_word_is_not_suggested(word: str, valid: list[str]) -> None:
    assert did_you_mean(word, valid) == ""


# Counts in words: 1 rank, 2 ranks, and no row of none.


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (0, "rank", "0 ranks"), (1, "rank", "1 rank"), (1024, "GPU", "1,024 GPUs"), (2, "switch", "2 switches"),
        (20, "epoch", "20 epochs"),
    ],
)  # fmt: skip
def test_a_count_has_its_noun_in_the_right_number(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words


def test_all_of_one_is_the_one() -> None:
    assert (all_of(1, "rank"), all_of(4, "rank")) == ("the rank", "all 4 ranks")


@pytest.mark.parametrize(
    ("dims", "words"),
    [((1,), "1 rank in one group"), ((2, 1), "1 row of 2 ranks"), ((4, 16, 2), "2 groups of 16 rows of 4 ranks")],
)
def test_a_grid_in_words(dims: tuple[int, ...], words: str) -> None:
    assert Grid(dims).words == words


@pytest.mark.parametrize(
    ("top", "rows", "of_all", "words"),
    [(2, 5, 16, "rows 3-7 of 16"), (0, 20, 16, "rows 1-16 of 16"), (0, 5, 1, "row 1 of 1"), (0, 0, 0, "no rows")],
)
def test_the_rows_of_a_window_in_words(top: int, rows: int, of_all: int, words: str) -> None:
    assert Window(top, rows).words(of_all) == words
