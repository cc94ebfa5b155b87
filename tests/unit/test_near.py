"""Suggestions for misspelt words: near ones, and no others."""

import pytest

from torusrun.orchestrator.cli.main import VERBS
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.training.recipe.key import key_of
from torusrun.training.recipe.near import did_you_mean, edits, nearest

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
