"""The example trains to 98 % in every place, and reports it."""

import json
from pathlib import Path

import pytest

from tests.e2e.places import ROOT, Place, metrics

pytestmark = pytest.mark.lab  # on this machine a training learns them in tests/training, and the docs run them


def run_digits(place: Place, *words: str) -> tuple[Path, str]:
    place.put("digits.yaml", (ROOT / "examples" / "digits.yaml").read_text())
    said = place.succeeds("submit", "digits.yaml", "--site", "./site.yaml", *words, "--wait")
    return Path(place.view(said.stdout.split()[0])["folder"]), said.stdout


def test_digits_reach_98_percent(place: Place) -> None:
    run, table = run_digits(place, *place.digits)
    assert metrics(run, "eval")[-1]["accuracy"] >= 0.98
    assert "test accuracy" in table and "images/s" in table and "COMPLETED" in table
    view = place.view(run)
    plan = json.loads((run / "plan.json").read_text())
    assert view["grid"] == plan["grid"] and view["ranks"] == plan["ranks"]
    assert len(view["hosts"]) == plan["spec"]["nodes"]
    slots = json.loads((run / "attempts/1/placement.json").read_text())["slots"]
    assert [s[1] for s in slots] == [h for h in view["hosts"] for _ in range(plan["ranks_per_node"])]
