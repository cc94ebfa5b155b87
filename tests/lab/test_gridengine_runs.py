"""torusrun on a real Grid Engine: tests that need a real one."""

import pytest

from tests.e2e.lab_places import GridEngine
from tests.e2e.places import WAITS, started
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine as Backend

from .gridengine import GridEngineLab


@pytest.fixture
def place(gridengine_lab: GridEngineLab) -> GridEngine:
    return GridEngine(gridengine_lab)


def test_abcis_form_of_asking_gets_whole_nodes(place: GridEngine) -> None:
    place.put("abci.yaml", (place.lab.home / "abci.yaml").read_text())
    has_scratch = 'test "$RANK" != 0 || test -w "$TORUSRUN_SCRATCH"'  # ABCI's SGE_LOCALDIR
    run = place.submit_script(has_scratch, "--set", "site=abci.yaml", "--set", "nodes=4", "--set", "grid=4x2")
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + place.torusrun("logs", run.name, "--all").stdout
    assert sorted(place.view(run)["hosts"]) == place.lab.nodes
    script = (run / "attempts/1/job.sh").read_text()
    assert "#$ -l rt_F=4" in script and "-pe" not in script


def test_host_groups_give_the_hosts_of_each_switch(place: GridEngine) -> None:
    """The lab has the groups @racka and @rackb, whose hosts alternate by name; the job asks for them."""
    site = place.site("racks.yaml", topology="{source: gridengine, uplink: 1/2}")
    run = place.submit_script("true", "--set", f"site={site}", "--set", "nodes=4", "--set", "grid=2x4")
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + place.torusrun("logs", run.name, "--all").stdout
    assert "keep the scheduler's order" not in (run / "attempts/1/job.err").read_text(), "the job was not told"
    racks = [host in ("node1", "node3") for host in place.view(run)["hosts"]]
    crossings = sum(a != b for a, b in zip(racks, [*racks[1:], racks[0]], strict=True))
    assert crossings == 2, f"a ring over {place.view(run)['hosts']} crosses between the racks {crossings} times"


def test_a_bare_qdel_leaves_an_end_record(place: GridEngine) -> None:
    run = place.submit_script(WAITS)
    started(run)
    assert place.run(["qdel", place.view(run)["job"]]).returncode == 0
    assert place.watch(run).returncode == 1
    view = place.view(run)
    assert view["state"] == "CANCELLED" and "outside" in view["reason"], view
    assert (run / "attempts/1/end.json").exists()


def test_a_thousand_jobs_cost_one_command_to_the_queue_and_one_to_the_records(
    gridengine_lab: GridEngineLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in gridengine_lab.env.items():
        monkeypatch.setenv(name, value)
    process.CALLS.clear()
    found = Client(Backend(gridengine_lab.settings.user), 30).poll([str(n) for n in range(900000, 901000)])
    assert dict(process.CALLS) == {"qstat": 1, "qacct": 1}
    assert {status.state for status in found.values()} == {State.LOST}


def test_ranks_start_without_ssh_and_without_open_mpis_support_of_grid_engine(place: GridEngine) -> None:
    run = place.submit_script("true", "--set", f"site={place.site('qrsh.yaml', remote_shell='scheduler')}")
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + place.torusrun("logs", run.name, "--all").stdout
