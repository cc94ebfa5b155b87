"""A site that `init --yes` writes on a login node, with doctor's job and the unchanged example on it."""

import json

from tests.e2e.places import ROOT, Local, Place

SHORT = ("--set", "train.epochs=1")


def test_the_example_runs_on_a_site_that_init_wrote(place: Place) -> None:
    here = ("--scheduler", "local") if place.cluster == "local" else ()
    said = place.succeeds("init", "written", "--yes", "--force", *here)
    assert f"scheduler: {place.cluster} " in said.stdout

    doctor = place.torusrun("doctor", "--site", "written", "--job", "--json")
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert {checks[name]["outcome"] for name in ("job", "shared files", "clocks", "node")} == {"ok"}, doctor.stdout
    left = json.loads(place.torusrun("status", "--json").stdout)["runs"]
    assert not [run for run in left if run["run"].startswith("doctor-")], "doctor removes its run"

    place.put("digits.yaml", (ROOT / "examples/digits.yaml").read_text())
    place.succeeds("submit", "digits.yaml", "--site", "written", *SHORT, "--wait")


def test_doctor_says_why_its_job_failed_and_removes_it(local: Local) -> None:
    site = local.site("failing.yaml", setup='["test -e /nowhere"]')
    doctor = local.torusrun("doctor", "--site", f"./{site}", "--job", "--json")
    (job,) = [check for check in json.loads(doctor.stdout)["checks"] if check["name"] == "job"]
    assert doctor.returncode == 3 and job["outcome"] == "failed", doctor.stdout + doctor.stderr
    assert "`test -e /nowhere` ended with exit code 1" in job["said"] and job["mend"]
    assert not [entry for entry in local.runs.iterdir() if "doctor" in entry.name]
