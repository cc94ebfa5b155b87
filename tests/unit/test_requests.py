"""What a run asks for: each key in each scheduler's words, what none of them can say, parts of a node, limits."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank, RoleOrder, check_shared
from torusrun.orchestrator.keys.request import Resources
from torusrun.orchestrator.keys.typed_run import Option, TypedRun
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import Placement, Slot
from torusrun.orchestrator.run.attempts.in_hold import misfits
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import request
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.program.what_runs import Program

PAGE = ROOT / "docs" / "reference" / "requests.md"
SCHEDULERS = ("slurm", "pbs", "gridengine")
HEADS = {
    "slurm": "scheduler: slurm\nlauncher: srun\n",
    "pbs": "scheduler: pbs\nlauncher: mpirun\n",
    "gridengine": "scheduler: gridengine\nlauncher: mpirun\n"
    'ask: ["-pe mpi {ranks}", "-l gpu={gpus}", "-l cores={cpus}"]\n',
}
NODE = "node: {ranks: 4, gpus: 4}\nrequest: {qos: usual, cpus_per_rank: 2, memory: 64GiB, options: [OPTION]}\n"
SAYS = {  # key: (its value, the directives that it makes at each scheduler; '' for an error)
    "qos": ("long", "--qos=long", "", ""),
    "constraint": ("type=a100", "--constraint=type=a100", ":type=a100", "-l type=a100"),
    "reservation": ("R12", "--reservation=R12", "-q R12", "-ar R12"),
    "memory": ("200G", "--mem=204800M", ":mem=204800mb", "-l mem_free=51200M"),
    "memory_per_rank": ("8GiB", "--mem=32768M", ":mem=32768mb", "-l mem_free=8192M"),
    "cpus_per_rank": ("5", "--cpus-per-task=5", ":ncpus=20", "-l cores=20"),
    "gpus": ("1", "--gres=gpu:1", ":ngpus=1", "-l gpu=1"),
    "gpu_type": ("v100", "--gres=gpu:v100:4", ":ngpus=4:gpu_type=v100", ""),
    "exclusive": ("true", "--exclusive", "-l place=scatter:excl", "-l exclusive=true"),
    "licenses": ("[matlab:2]", "--licenses=matlab:2", "-l matlab=2", "-l matlab=2"),
    "options": ("[-m e]", "-m e", "-m e", "-m e"),
}
CELLS = [(key, name) for key in SAYS for name in SCHEDULERS]


def planned(folder: Path, site: str, run: str = "", *settings: str) -> Plan:
    (folder / "site.yaml").write_text(site)
    (folder / "run.yaml").write_text(f"name: x\nsite: site.yaml\n{run}command: ['true']\n")
    return plan(folder / "run.yaml", settings=settings, run_id="x-1")


def site_of(name: str, more: str = NODE) -> str:
    usual = more.replace("OPTION", {"slurm": "--nice", "pbs": "-p 1", "gridengine": "-p 1"}[name])
    return HEADS[name] + (usual if name == "slurm" else usual.replace("qos: usual, ", ""))


def directives(made: Plan) -> list[str]:
    asked = request(AttemptPlan(1, made), RunFolder(made.folder).attempt(1))
    return schedulers.get(made.site.scheduler).directives(asked)


def test_qsub_gets_the_queue_of_a_reservation_that_is_named_by_its_id(tmp_path: Path) -> None:
    for named, queue in (("R12.pbs01.site", "R12"), ("S3", "S3"), ("R12@pbs01", "R12@pbs01"), ("my.own", "my.own")):
        made = planned(tmp_path, site_of("pbs"), f"request: {{reservation: {named}}}\n")
        assert f"#PBS -q {queue}" in directives(made)


@pytest.mark.parametrize(("key", "name"), CELLS)
def test_a_key_replaces_the_sites_in_the_words_of_the_scheduler(key: str, name: str, tmp_path: Path) -> None:
    value, said = SAYS[key][0], SAYS[key][1 + SCHEDULERS.index(name)]
    run = f"request:\n  {key}: {value}\n"
    if not said:
        with pytest.raises(UserError, match=rf"run.yaml:4:\d+: 'request.{key}': {name} has no request for it \(it has"):
            planned(tmp_path, site_of(name), run)
        return
    before, after = (set(directives(planned(tmp_path, site_of(name), text))) for text in ("", run))
    new = after - before
    assert any(said in line for line in new), (new, said)
    if key == "options":
        assert before < after, "the site's own stay"
    gone = {"memory", "memory_per_rank", "cpus_per_rank", "gpus", "gpu_type"}
    if key in gone or (key, name) in {("qos", "slurm"), ("constraint", "pbs"), ("exclusive", "pbs")}:
        assert len(before - after) >= 1, "the site's value is replaced, not said beside it"


@pytest.mark.parametrize(("key", "name"), CELLS)
def test_the_page_has_the_words_of_each_cell(key: str, name: str) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{key}`"))
    cell = row.split("|")[2 + SCHEDULERS.index(name)]
    said = SAYS[key][1 + SCHEDULERS.index(name)]
    words = "as it is" if key == "options" else re.split(r"[=:]", said.lstrip(":"))[0].removesuffix(" R12")
    assert (words in cell) if said else ("none" in cell), (cell, words)


def test_every_key_has_a_row() -> None:
    assert list(as_written(Resources())) == list(SAYS)


BROKEN = [  # (run, site, what the message says)
    ("request: {qos: long}\n", HEADS["pbs"], "run.yaml:3:16: 'request.qos': pbs has no request for it"),
    ("request: {qos: long}\n", "scheduler: local\nlauncher: spawn\n", "it has cpus_per_rank"),
    ("", f"{HEADS['pbs']}request: {{qos: long}}\n", "site.yaml:3:16: 'request.qos': pbs has no request for it"),
    ("request: {gpus: 2}\n", site_of("slurm") + "ask: [--x]\n", "do not have it ('ask'); write {gpus}"),
    ("request: {memory: 1G}\n", site_of("pbs") + "ask: [-l x]\n", "do not have it ('ask'); write it there"),
    ("request: {gpus: 5}\n", site_of("slurm"), "run.yaml:3:17: 'request.gpus' (5) is more than a node has"),
    ("request: {memory: 1G, memory_per_rank: 1G}\n", site_of("slurm"), "exclude each other"),
    ("request: {memory: 2T}\n", site_of("slurm") + "most: {memory: 1TiB}\n", "'request.memory' takes 2048 GiB"),
    ("request: {memory_per_rank: 300G}\n", site_of("slurm") + "most: {memory: 1TiB}\n", "takes 1200 GiB of a node"),
    ("time: 3d\n", site_of("slurm") + "most: {time: 2d}\n", "run.yaml:3:7: 'time' (259200s) is more than the site's"),
    ("request: {memory: 5 apples}\n", site_of("slurm"), "write it as 60GiB, or as schedulers do"),
    ("request: {options: [--clusters=x]}\n", site_of("slurm"), "run.yaml:3:20: 'request.options': '--clusters=x' sub"),
    ("request: {qos: --evil}\n", site_of("slurm"), "begin with '-'"),
    ("request: {constraint: 'a#b'}\n", site_of("gridengine"), "run.yaml:3:23: 'request.constraint': 'a#b' holds '#'"),
    ("request: {licenses: ['a:0']}\n", site_of("slurm"), "write NAME or NAME:NUMBER"),
    ("request: {qoss: a}\n", site_of("slurm"), "did you mean 'qos'"),
]


@pytest.mark.parametrize(("run", "site", "says"), BROKEN, ids=[each[2] for each in BROKEN])
def test_what_cannot_be_asked_for_is_one_clear_error(run: str, site: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        planned(tmp_path, site, run)
    assert says in str(caught.value) and str(caught.value).count("\n") == 0


@pytest.mark.parametrize("constraint", ["a100&nvlink", "a b", ":", "x=1:place=excl -l"])
def test_a_chunk_of_pbs_takes_resources_only(constraint: str, tmp_path: Path) -> None:
    made = planned(tmp_path, site_of("pbs"), f"request: {{constraint: '{constraint}'}}\n")
    with pytest.raises(UserError, match=r"write NAME=VALUE"):
        directives(made)


def test_a_part_of_a_node_has_its_share_of_ranks_and_hands_on_the_sites_other_values(tmp_path: Path) -> None:
    made = planned(tmp_path, site_of("slurm"), "request: {gpus: 2, memory: 100G, exclusive: false}\n")
    said = directives(made)
    assert {"#SBATCH --ntasks-per-node=2", "#SBATCH --gres=gpu:2", "#SBATCH --mem=102400M"} <= {*said}
    assert "#SBATCH --qos=usual" in said and "#SBATCH --cpus-per-task=2" in said
    assert "#SBATCH --exclusive" not in said and made.site.node.gpus == 4 and made.site.gpus == 2
    without = planned(tmp_path, site_of("slurm"), "request: {gpus: 0}\n")
    assert not any("gres" in line for line in directives(without)) and without.ranks_per_node == 4


ABCI = [  # (site, request, its directives)
    ("abci-v", "gpus: 1", {"#$ -l rt_G.small=1"}),
    ("abci-v", "gpus: 0", {"#$ -l rt_C.small=1"}),
    ("abci-v", "{gpus: 0, memory: 100GiB}", {"#$ -l rt_C.large=1"}),
    ("abci-v", "gpus: 4", {"#$ -l rt_F=1"}),
    ("abci-a", "gpus: 1", {"#$ -l rt_AG.small=1"}),
    ("abci-h", "gpus: 1", {"#PBS -l select=1:mpiprocs=1", "#PBS -q rt_HG"}),
    ("abci-h", "gpus: 0", {"#PBS -l select=1:mpiprocs=8", "#PBS -q rt_HC"}),
]


@pytest.mark.parametrize(("site", "asked", "said"), ABCI, ids=[f"{each[0]} {each[1]}" for each in ABCI])
def test_abci_gives_the_smallest_part_that_has_it_all(site: str, asked: str, said: set[str], tmp_path: Path) -> None:
    text = asked if asked.startswith("{") else f"{{{asked}}}"
    (tmp_path / "run.yaml").write_text(f"name: x\nsite: {site}\naccount: g1\nrequest: {text}\ncommand: ['true']\n")
    made = plan(tmp_path / "run.yaml")
    lines = directives(made)
    assert said <= {*lines} and not any("mem" in line for line in lines), lines
    assert made.site.cpus_per_rank * made.ranks_per_node <= 40


@pytest.mark.parametrize("more", ["gpus: 3", "gpus: 1, cpus_per_rank: 9", "gpus: 1, memory: 100GiB"])
def test_a_part_that_abci_does_not_have_is_an_error_that_lists_its_parts(more: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"name: x\nsite: abci-v\naccount: g\nrequest: {{{more}}}\ncommand: ['true']\n")
    with pytest.raises(UserError, match=r"run.yaml:4:\d+: .*no part of one node has all of this; .*rt_G.small=1: 1 GP"):
        plan(tmp_path / "run.yaml")
    with pytest.raises(UserError, match="no part of one node"):
        plan(tmp_path / "run.yaml", settings=["request={gpus: 1}", "nodes=2"])


def test_the_options_of_run_are_keys_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(site_of("slurm"))
    options = (Option(("name",), "x", "--"), Option(("site",), str(tmp_path / "site.yaml"), "--site"))
    typed = TypedRun((*options, Option(("command",), ("true",), "--")), tmp_path)
    settings = ["--qos=long", "--mem=200G", "--constraint=a&b", "--reservation=r", "--cpus-per-rank=3"]
    said = directives(plan(typed, settings=settings))
    assert {"#SBATCH --qos=long", "#SBATCH --mem=204800M", "#SBATCH --cpus-per-task=3"} <= {*said}
    assert {'#SBATCH "--constraint=a&b"', "#SBATCH --reservation=r"} <= {*said}
    with pytest.raises(UserError, match="^--mem lots: 'request.memory'"):
        plan(typed, settings=["--mem=lots"])


def test_plan_and_dry_run_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    monkeypatch.chdir(tmp_path)
    planned(
        tmp_path,
        f"{site_of('slurm')}runs: {tmp_path}\n",
        "code: none\nrequest: {qos: long, gpus: 2, exclusive: true}\n",
    )
    assert main(["plan", "run.yaml"]) == 0
    words = "qos long, memory 64 GiB, cpus_per_rank 2, gpus 2, exclusive yes, options --nice"
    assert f"request     {words}" in capsys.readouterr().out
    assert Resources(memory_bytes=300 * 2**20).words() == {"memory": "300 MiB"}
    assert main(["submit", "run.yaml", "--dry-run", "--set", "request.memory=1G"]) == 0
    assert "#SBATCH --mem=1024M" in capsys.readouterr().out


def test_members_of_a_sweep_with_other_requests_have_other_arrays(tmp_path: Path, capsys: Capsys) -> None:
    sweep = "sweep:\n  request.memory: [1G, 2G]\n  env.SEED: ['1', '2']\n"
    (tmp_path / "site.yaml").write_text(f"{site_of('slurm')}runs: {tmp_path}\n")
    (tmp_path / "run.yaml").write_text(f"name: x\nsite: {tmp_path}/site.yaml\n{sweep}code: none\ncommand: ['true']\n")
    assert main(["submit", str(tmp_path / "run.yaml"), "--dry-run", "--json"]) == 0
    arrays = [each["script"] for each in json.loads(capsys.readouterr().out)["submits"]]
    asked = [re.findall(r"--mem=\d+M|--array=\S+", script) for script in arrays]
    assert asked == [["--mem=1024M", "--array=0-1"], ["--mem=2048M", "--array=0-1"]]


def test_a_held_allocation_takes_runs_that_ask_for_what_it_has(tmp_path: Path) -> None:
    held = planned(tmp_path, site_of("slurm"), "request: {qos: long}\n")
    silent, same, other, part = (
        planned(tmp_path, site_of("slurm"), run)
        for run in ("", "request: {qos: long}\n", "request: {qos: short}\n", "request: {gpus: 1}\n")
    )
    assert misfits(silent, held) == misfits(same, held) == []
    assert misfits(other, held) == ["the run asks for another request.qos than it did"]
    assert misfits(part, held) == ["the run asks for another request.gpus than it did"]


def on_node(gpus: int | None, ranks: int = 1) -> list[Rank]:
    """The ranks of a job on a node of four GPUs, with two adapters and ten cores beside each GPU."""
    beside = tuple(tuple(range(10 * gpu, 10 * gpu + 10)) for gpu in range(4))
    order = LaunchOrder(
        "x", (RoleOrder(Program(("true",))),), ("R", "L"), ("mlx0", "mlx1"), beside, None, 30.0, 0o077, gpus=gpus
    )
    placement = Placement(Grid((ranks,)), tuple(Slot(rank, "h", rank, (rank,)) for rank in range(ranks)))
    return [Rank(rank, RunFolder(Path("/x")).attempt(1), order, placement) for rank in range(ranks)]


GIVEN = [  # (the job's variables, its ranks, their cores' first numbers, their adapters)
    ({"CUDA_VISIBLE_DEVICES": "3"}, 1, [30], ["mlx1"]),
    ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "1,3"}, 2, [10, 30], ["mlx0", "mlx1"]),
    ({"SGE_HGR_gpu": "2 0"}, 2, [20, 0], ["mlx1", "mlx0"]),
    ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c"}, 1, [0], ["mlx0"]),
    ({}, 2, [0, 10], ["mlx0", "mlx1"]),
]


@pytest.mark.parametrize(("inherited", "count", "cores", "adapters"), GIVEN, ids=[str(each[0]) for each in GIVEN])
def test_on_a_part_of_a_node_ranks_take_what_is_beside_the_gpus_that_the_job_was_given(
    inherited: dict[str, str], count: int, cores: list[int], adapters: list[str]
) -> None:
    ranks = on_node(count, count)
    assert [mine[0][0] for mine in ranks[0].cores(inherited)] == cores
    variables = [rank.variables(None, inherited) for rank in ranks]
    assert [each["UCX_NET_DEVICES"] for each in variables] == [f"{name}:1" for name in adapters]
    shown = variables[0].get("CUDA_VISIBLE_DEVICES")
    assert shown == ("2,0" if "SGE_HGR_gpu" in inherited else None), "what the scheduler says itself is handed on"


def test_on_a_whole_node_nothing_is_taken_by_other_numbers() -> None:
    ranks = on_node(None, 4)
    assert [mine[0][0] for mine in ranks[0].cores({"CUDA_VISIBLE_DEVICES": "3,2,1,0"})] == [0, 10, 20, 30]


def test_a_rank_does_not_start_on_gpus_that_may_be_anothers(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    with pytest.raises(SiteError, match=r"has 2 GPUs of this node, which shows 4, .* CUDA_VISIBLE_DEVICES is not set"):
        check_shared(2, {}, tmp_path)
    check_shared(4, {}, tmp_path)  # the device files that it may open are its own
    check_shared(2, {"CUDA_VISIBLE_DEVICES": "1,2"}, tmp_path)
    check_shared(2, {"SGE_HGR_gpu": "1 2"}, tmp_path)
    check_shared(None, {}, tmp_path)
