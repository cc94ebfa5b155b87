"""`torusrun calibrate` in the place of a run: predict uses its measurements."""

import json
from pathlib import Path

import pytest

from tests.e2e.places import Local, Place, metrics


def test_a_place_is_measured_and_its_runs_predicted(place: Place) -> None:
    if place.cluster == "gridengine":
        pytest.skip("a job that measures is a job like any other: measured on Slurm, and on PBS where it is")
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


STEPS = "for n in $(seq 60); do sleep 0.1; echo step $n of 60; done"


def test_a_command_is_measured_at_two_sizes_and_predicted(local: Local) -> None:
    """By a pattern over its output, which names the step and their number."""
    local.write_script(STEPS)
    pattern = "step (?P<step>[0-9]+) of (?P<total_steps>[0-9]+)"
    words = ["script.yaml", "--set", f"metrics.pattern={pattern}"]
    for ranks in (2, 4):
        local.succeeds("submit", *words, "--set", "grid=auto", "--set", f"ranks_per_node={ranks}", "--wait")
    found = json.loads(local.torusrun("predict", *words, "--json").stdout)
    assert [run["ranks"] for run in found["runs"]] == [2, 4] and found["steps"] == 60
    assert 0.09 < found["step_s"] < 0.4, "a machine with other work"
    local.succeeds("submit", *words)
    assert "forecast " in local.torusrun("status", "last").stdout
    assert local.torusrun("watch", "last").returncode == 0
    assert "predicted at submit" in local.torusrun("show", "last").stdout
