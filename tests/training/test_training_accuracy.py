"""The values of the shipped example learn the digits."""

from __future__ import annotations

from pathlib import Path

from training_runs import config, finish


def test_digits_are_learned(tmp_path: Path) -> None:
    done = finish(config(tmp_path, (1, 1))).events("done")[0]
    assert done["accuracy"] >= 0.98, f"the example reaches {done['accuracy']:.4f} of the digits, 0.98 is promised"
