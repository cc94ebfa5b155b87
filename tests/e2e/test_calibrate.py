"""`torusrun calibrate` in the place of a run: predict uses its measurements."""

import json
from pathlib import Path

import pytest

from tests.e2e.places import Place, metrics


def test_a_place_is_measured_and_its_runs_predicted(place: Place) -> None:
    if place.cluster in ("local", "gridengine"):
        pytest.skip("a job that measures is a job like any other: on Slurm, and here for docs/guides/predict.md")
    place.write_spec()
    site = place.site("measured.yaml")
    said = place.succeeds("calibrate", "run.yaml", "--site", f"./{site}", "--json")
    found = json.loads(said.stdout)
    assert Path(found["kept"]).name == "measured.measured"
    nodes = 1 if place.cluster == "local" else 2
    assert [link["link"] for link in found["links"]] == ["intra_node", "inter_node"][:nodes]
    run = Path(place.view("last")["folder"])
    assert metrics(run, "done") and not (run / "checkpoints").exists()
    said = place.succeeds("predict", "run.yaml", "--site", f"./{site}", "--json")
    assert json.loads(said.stdout)["step_s"] > 0
    assert len(found["all_reduces"]) > 1 and found["over"].endswith("gloo, fp32")
    on_cpus = ("--site", f"./{site}", "--set", "train.device=cpu")  # the GPUs of the lab's Slurm are names alone
    planned = json.loads(place.succeeds("plan", "run.yaml", *on_cpus, "--json").stdout)
    assert planned["all_reduce"].endswith(f"measured at this site on {found['over']}")
    said = place.torusrun("calibrate", "run.yaml", "--from", "last", "--site", f"./{site}")
    assert said.returncode == 0 and "us an image (resnet-digits)" in said.stdout, said.stderr
    assert said.stdout.rstrip().endswith("measured.measured")
