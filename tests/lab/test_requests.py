"""What runs ask for, as the real schedulers understood it (docs/reference/requests.md)."""

import re
from pathlib import Path

import pytest

from tests.e2e.lab_places import GridEngine, InLab, Slurm
from tests.e2e.places import WAITS, ledger, started, until

from .gridengine import GridEngineLab
from .slurm import SlurmLab

ONE_RANK = ("--set", "nodes=1", "--set", "ranks_per_node=1", "--set", "grid=1x1")
GPUS = f"echo gpus $CUDA_VISIBLE_DEVICES $SLURM_STEP_GPUS, cores $OMP_NUM_THREADS; {WAITS}"


@pytest.fixture(scope="module")
def of_slurm(slurm_lab: SlurmLab) -> Slurm:
    """With a QOS, a feature of two nodes, and a reservation of the two others."""
    user = slurm_lab.settings.user
    slurm_lab.admin(["sacctmgr", "-i", "add", "qos", "long"])
    slurm_lab.admin(["sacctmgr", "-i", "modify", "user", user, "set", "qos+=long"])
    slurm_lab.admin(["scontrol", "update", "nodename=node[1-2]", "availablefeatures=fast", "activefeatures=fast"])
    reserved = ["starttime=now", "duration=30", f"users={user}", "nodes=node[3-4]"]
    slurm_lab.admin(["scontrol", "create", "reservation", "reservationname=R12", *reserved])
    yield Slurm(slurm_lab)
    slurm_lab.admin(["scontrol", "delete", "reservationname=R12"])


@pytest.fixture(scope="module")
def of_gridengine(gridengine_lab: GridEngineLab) -> GridEngine:
    """With resources that a site may have: a type of two hosts, GPUs, cores, exclusive hosts, and a license."""
    complexes = gridengine_lab.admin(["qconf", "-sc"]).stdout
    more = (
        "type type STRING == YES NO NONE 0\ngpu gpu INT <= YES YES 0 0\ncores cores INT <= YES YES 0 0\n"
        "exclusive exclusive BOOL EXCL YES YES 0 1000\nmatlab matlab INT <= YES YES 0 0\n"
    )
    gridengine_lab._tell("-Mc", complexes + more)
    for node in gridengine_lab.nodes:
        kind = "a100" if node in ("node1", "node2") else "v100"
        gridengine_lab.admin(
            ["qconf", "-aattr", "exechost", "complex_values", f"type={kind},gpu=2,cores=8,exclusive=true", node]
        )
    gridengine_lab.admin(["qconf", "-aattr", "exechost", "complex_values", "matlab=2", "global"])
    return GridEngine(gridengine_lab)


def shown(place: InLab, run: Path) -> str:
    """The job of a run in the scheduler's own words."""
    job = place.view(run)["job"]
    command = ["scontrol", "show", "job", "-d", job] if place.cluster == "slurm" else ["qstat", "-j", job]
    return place.lab.admin(command).stdout


def submitted(place: InLab, request: str, *words: str, script: str = WAITS) -> Path:
    run = place.submit_script(script, *ONE_RANK, "--set", f"request={request}", *words)
    try:
        until(lambda: place.view(run)["state"] == "RUNNING", "the job to begin")
    except AssertionError:
        place.torusrun("cancel", run.name)
        raise
    started(run)
    return run


def ended(place: InLab, *runs: Path) -> None:
    for run in runs:
        place.release(run)
        assert place.watch(run).returncode == 0, place.view(run)


def test_slurm_gets_each_part_of_a_request(of_slurm: Slurm) -> None:
    asked = "{qos: long, constraint: fast, memory: 700M, cpus_per_rank: 3, gpus: 1, gpu_type: v100, exclusive: true, "
    run = submitted(of_slurm, f"{asked}licenses: ['matlab:2'], options: [--comment=mine]}}", script=GPUS)
    job = shown(of_slurm, run)
    for said in ("QOS=long", "Features=fast", "MinMemoryNode=700M", "CPUs/Task=3", "gpu:v100:1", "Licenses=matlab:2"):
        assert said in job, job
    assert "Comment=mine" in job and "OverSubscribe=NO" in job, job
    assert of_slurm.view(run)["hosts"][0] in ("node1", "node2")
    ended(of_slurm, run)
    assert "cores 3" in (run / "attempts/1/logs/rank-0000.log").read_text()


def test_slurm_gets_memory_by_the_rank_and_a_reservation(of_slurm: Slurm) -> None:
    two = ("--set", "ranks_per_node=2", "--set", "grid=1x2")
    run = submitted(of_slurm, "{memory_per_rank: 600M, reservation: R12}", *two)
    job = shown(of_slurm, run)
    assert "MinMemoryNode=1200M" in job and "Reservation=R12" in job, job
    assert of_slurm.view(run)["hosts"][0] in ("node3", "node4")
    ended(of_slurm, run)


def test_two_runs_share_a_node_and_have_other_gpus_of_it(of_slurm: Slurm) -> None:
    asked = "{gpus: 1, memory: 700M}"
    place = ("--set", "request.options=[--nodelist=node1]")
    first, second = (submitted(of_slurm, asked, *place, script=GPUS) for _ in range(2))
    assert of_slurm.view(first)["hosts"] == of_slurm.view(second)["hosts"] == ["node1"], "they did not share a node"
    ended(of_slurm, first, second)
    said = [(run / "attempts/1/logs/rank-0000.log").read_text() for run in (first, second)]
    given = [re.search(r"gpus (\S*) (\S*),", text) for text in said]
    assert all(given) and {match[2] for match in given if match} == {"0", "1"}, said


def test_slurm_refuses_what_a_site_does_not_have_and_leaves_no_run(of_slurm: Slurm) -> None:
    of_slurm.write_script("true")
    for asked in ("{constraint: slow}", "{gpu_type: b200}", "{reservation: R13}", "{licenses: [none]}"):
        said = of_slurm.torusrun("submit", "script.yaml", *ONE_RANK, "--set", f"request={asked}")
        assert said.returncode == 3 and said.stderr.count("\n") <= 2, said.stderr


def test_a_run_that_lacked_memory_gets_more_from_its_own_job(of_slurm: Slurm) -> None:
    if not of_slurm.lab.has_cgroups:
        pytest.skip("without control groups Slurm limits no memory")
    takes = "head -c 900M /dev/zero | tail -c 900M > /dev/null"
    grow = "keep_going={attempts: 2, grow: {memory: 3, most: {memory: 2G}}}"
    run = of_slurm.submit_script(takes, *ONE_RANK, "--set", "request={memory: 500M}", "--set", grow)
    said = of_slurm.watch(run)
    assert said.returncode == 0, said.stdout + said.stderr
    first, second = ledger(run, "ended")
    assert (first["state"], second["state"]) == ("OOM", "COMPLETED")
    assert ledger(run, "submitting")[1]["changes"] == {"memory_bytes": 1500 * 2**20}
    assert "#SBATCH --mem=1500M" in (run / "attempts/2/job.sh").read_text()
    assert "asks for 1.5 GiB a node, in another job" in (run / "attempts/1/jobs.out").read_text()


def of_gpus(place: GridEngine, name: str, **keys: str) -> str:
    """A site with two GPUs on a node."""
    place.site(name, **keys)
    place.put(name, (place.folder / name).read_text().replace("  ranks: 2\n", "  ranks: 2\n  gpus: 2\n"))
    return name


def test_grid_engine_gets_each_part_of_a_request(of_gridengine: GridEngine) -> None:
    ask = '["-pe single {ranks}", "-l gpu={gpus}", "-l cores={cpus_per_rank}"]'
    site = of_gpus(of_gridengine, "gpus.yaml", ask=ask)
    asked = "{constraint: type=a100, memory: 64M, cpus_per_rank: 3, gpus: 1, licenses: ['matlab:2'], options: [-p -7]}"
    run = submitted(of_gridengine, asked, "--site", site, script=GPUS)
    job = shown(of_gridengine, run)
    for said in ("type=a100", "mem_free=64", "cores=3", "gpu=1", "matlab=2"):
        assert said in job, job
    assert re.search(r"^priority: +-7$", job, re.MULTILINE), job
    (host,) = of_gridengine.view(run)["hosts"]
    assert host in ("node1", "node2")
    left = of_gridengine.lab.admin(["qhost", "-F", "cores", "-h", host]).stdout
    assert re.search(r"hc:cores=5\b", left), left
    ended(of_gridengine, run)
    assert "cores 3" in (run / "attempts/1/logs/rank-0000.log").read_text()
    alone = submitted(of_gridengine, "{exclusive: true}", "--site", site)
    assert "exclusive=true" in shown(of_gridengine, alone).lower()
    ended(of_gridengine, alone)


def test_grid_engine_gives_memory_by_the_rank_a_part_by_its_name_and_a_reservation(of_gridengine: GridEngine) -> None:
    user = of_gridengine.lab.settings.user
    made = of_gridengine.lab.admin(["qrsub", "-d", "1800", "-pe", "single", "2", "-u", user]).stdout
    number = re.findall(r"reservation (\d+)", made)[0]
    parts = "[{ask: ['-pe single 1', '-l gpu=1'], gpus: 1, cpus: 2}]"
    site = of_gpus(of_gridengine, "parts.yaml", parts=parts, ask='["-pe single {ranks}"]', request="{memory: 1G}")
    whole = submitted(of_gridengine, "{memory_per_rank: 64M}", "--site", site)
    assert re.search(r"mem_free=64(\.000)?M", shown(of_gridengine, whole))
    part = submitted(of_gridengine, "{gpus: 1}", "--site", site)
    assert "gpu=1" in shown(of_gridengine, part) and "mem_free" not in shown(of_gridengine, part)
    plain = of_gridengine.site("plain.yaml", ask='["-pe single {ranks}"]')  # a reservation has no mem_free to give
    reserved = submitted(of_gridengine, f"{{reservation: {number}}}", "--site", plain)
    assert re.search(rf"ar_id: +{number}\b", shown(of_gridengine, reserved)), shown(of_gridengine, reserved)
    ended(of_gridengine, whole, part, reserved)
    of_gridengine.lab.admin(["qrdel", number])  # else it keeps slots from other tests
