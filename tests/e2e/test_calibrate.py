"""`torusrun calibrate` in the place of a run: predict uses its measurements."""

import json
from pathlib import Path

import pytest

from tests.e2e.places import Place, metrics


def test_a_place_is_measured_and_its_runs_predicted(place: Place) -> None:
    if place.cluster == "gridengine":
        pytest.skip("a job that measures is a job like any other: measured on Slurm, and on PBS where it is")
    place.write_spec()
    site = place.site("measured.yaml")
    said = place.torusrun("calibrate", "run.yaml", "--site", f"./{site}", "--json")
    assert said.returncode == 0, said.stdout + said.stderr
    found = json.loads(said.stdout)
    assert Path(found["kept"]).name == "measured.measured"
    nodes = 1 if place.cluster == "local" else 2
    assert [link["link"] for link in found["links"]] == ["intra_node", "inter_node"][:nodes]
    run = Path(place.view("last")["folder"])
    assert metrics(run, "done") and not (run / "checkpoints").exists()
    said = place.torusrun("predict", "run.yaml", "--site", f"./{site}", "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["step_s"] > 0
    said = place.torusrun("calibrate", "run.yaml", "--from", "last", "--site", f"./{site}")
    assert said.returncode == 0 and "us an image (resnet-digits)" in said.stdout, said.stderr
    assert said.stdout.rstrip().endswith("measured.measured")
