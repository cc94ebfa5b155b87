"""`torusrun where` on real schedulers: queues that are open, closed or too short, and nodes that a job occupies."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.lab_places import GridEngine, Slurm
from tests.e2e.places import WAITS, Place, Said, started, until

from .gridengine import GridEngineLab
from .slurm import SlurmLab

LONG = ("--set", "time=30m")


def where(place: Place, *words: str, site: str = "site.yaml") -> dict[str, dict[str, Any]]:
    """The answer by queue."""
    said = place.torusrun("where", "script.yaml", "--json", "--site", site, *words)
    assert said.returncode in (0, 2), said.stderr
    return {found["queue"]: found for found in json.loads(said.stdout)["places"]}


def test_slurms_partitions(slurm_lab: SlurmLab) -> None:
    place = Slurm(slurm_lab)
    place.write_script("true")
    queued = place.queued()
    free = where(place, *LONG)
    assert (free["main"]["outcome"], free["main"]["free"], free["main"]["usual"]) == ("now", 4, True), free
    assert free["short"]["outcome"] == "never" and "its longest job is 2.0 min" in free["short"]["why"], free
    assert free["closed"]["outcome"] == "never" and "its state is DOWN" in free["closed"]["why"], free
    lifted = where(place, *LONG, "--set", "request.qos=normal")
    assert lifted["short"]["outcome"] == "not known" and "unless the QOS normal lifts" in lifted["short"]["why"], lifted
    assert lifted["closed"]["outcome"] == "never", lifted
    too_many = where(place, *LONG, "--set", "nodes=5", "--set", "grid=5x2")
    assert {found["outcome"] for found in too_many.values()} == {"never"}, too_many
    assert place.queued() == queued, "nothing may be submitted"


def test_slurm_estimates_the_start_behind_another_job(slurm_lab: SlurmLab) -> None:
    place = Slurm(slurm_lab)
    place.write_script(WAITS)
    run = place.submit_script(WAITS, *LONG, "--set", "nodes=4", "--set", "grid=4x2")
    started(run)
    later = where(place, *LONG)["main"]
    assert later["outcome"] == "later" and later["start_s"] and later["free"] == 0, later
    place.release(run)
    assert place.watch(run).returncode == 0


def test_the_soonest_place_is_the_one_that_is_open(slurm_lab: SlurmLab) -> None:
    place = Slurm(slurm_lab)
    settings = f"{place.folder}/soonest"  # a folder of settings that has these two sites alone
    assert place.run(["mkdir", "-p", f"{settings}/torusrun/sites"]).returncode == 0
    place.put(f"{settings}/torusrun/sites/open.yaml", place.site_text())
    place.put(f"{settings}/torusrun/sites/wrong.yaml", "scheduler: none\n")
    place.write_script("true")

    def soonest(*words: str) -> Said:
        submit = ("python", "-m", "torusrun", "submit", "script.yaml", "--site", "soonest")
        return place.run(["env", f"XDG_CONFIG_HOME={settings}", *submit, *words])

    run = soonest(*LONG)
    assert run.returncode == 0 and "the run goes to open, queue main: now" in run.stderr, run.stderr
    until(lambda: place.view(run.stdout.strip())["state"] == "COMPLETED", "the run to end")
    refused = soonest("--set", "nodes=5", "--set", "grid=5x2")
    assert refused.returncode == 2 and "can start at none of your sites" in refused.stderr, refused.stderr


def test_grid_engine_says_whether_there_is_room_now(gridengine_lab: GridEngineLab) -> None:
    place = GridEngine(gridengine_lab)
    place.write_script("true")
    assert where(place)["all.q"]["outcome"] == "now"
    others = [place.run(["qsub", "-terse", "-b", "y", "-pe", "mpi", "8", "sleep", "300"]) for _ in range(4)]
    try:
        until(lambda: where(place)["all.q"]["outcome"] == "can start", "other jobs to take all slots")
    finally:
        assert place.run(["qdel", *(job.stdout.strip() for job in others)]).returncode == 0
    never = where(place, "--set", "nodes=9", "--set", "grid=9x2")["all.q"]
    assert never["outcome"] == "never" and "verification: no suitable queues" in never["why"], never


def test_grid_engine_does_not_refuse_what_a_jsv_of_its_server_translates(gridengine_lab: GridEngineLab) -> None:
    place = GridEngine(gridengine_lab)
    place.put("abci.yaml", (gridengine_lab.home / "abci.yaml").read_text())
    place.write_script("true")
    four = where(place, "--set", "nodes=4", "--set", "grid=4x2", site="abci.yaml")["all.q"]
    assert four["outcome"] == "can start", four
