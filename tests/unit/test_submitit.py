"""The submitit plug-ins: what parameters become, what a job's environment tells, and what installing them costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import submitit
from submitit.core import plugins as of_submitit

from tests.unit.golden_text import assert_golden, differences
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.submitit import cluster_job, environments
from torusrun.orchestrator.submitit.plugins import OWN, ClusterExecutor, GridEngineExecutor, PBSExecutor

GOLDEN = Path(__file__).parent / "golden"


class HerePBS(PBSExecutor):
    """As on a submit host."""

    programs = ("sh",)


class HereGridEngine(GridEngineExecutor):
    programs = ("sh",)


def test_submitit_knows_both_and_a_machine_without_them_gets_an_error(tmp_path: Path) -> None:
    assert {"pbs", "gridengine", "slurm", "local"} <= set(of_submitit.get_executors())
    assert {type(env).__name__ for env in of_submitit.get_job_environments().values()} >= {"GridEngineEnvironment"}
    if PBSExecutor.affinity() < 0:
        with pytest.raises(RuntimeError, match="pbsnodes: not all on PATH; is this a submit host of pbs"):
            submitit.AutoExecutor(tmp_path, cluster="pbs")


def test_importing_submitit_loads_nothing_of_ours() -> None:
    program = "import sys, submitit; print([m for m in sys.modules if m.startswith('orchestrator')])"
    said = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60, check=True)
    assert said.stdout.strip() == "[]"


def test_choosing_an_executor_loads_no_torch() -> None:
    program = (
        "import sys, submitit; submitit.AutoExecutor.which(); print('torch' in sys.modules, 'rich' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60, check=True)
    assert said.stdout.strip() == "False False"


def test_the_script_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Grid Engine is kept whole, and how PBS's differs from it."""
    monkeypatch.chdir("/usr")
    for name in OWN["env"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", "/my/code::.")
    pbs = function_script(HerePBS)
    gridengine = function_script(HereGridEngine, ask=["-pe mpi {ranks}", "-l gpu={gpus}"])
    assert_golden(GOLDEN / "submitit-gridengine.sh", gridengine)
    assert_golden(GOLDEN / "submitit-pbs.diff", differences(pbs, gridengine))
    for text in (pbs, gridengine):
        assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=10).returncode == 0


def function_script(cls: type[ClusterExecutor], **more: object) -> str:
    executor = cls("/shared/my logs/%j", python="/opt/env/bin/python")
    executor.update_parameters(
        name="try", timeout_min=90, nodes=1, cpus_per_task=3, gpus_per_node=2, mem_gb=1.5,
        queue="gpu", account="g1", directives=["-m e"], setup=["module load x"], teardown=["echo over"],
        signal_delay_s=60, **more,
    )  # fmt: skip
    return executor._text(executor.request()).replace(str(Path(__file__).parents[2]), "/opt/torusrun")


def test_what_a_job_runs_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle that another could write would be code that another could run."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "qsub").write_text("#!/bin/sh\necho 7.server\n")
    (tmp_path / "bin" / "qsub").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    before = os.umask(0)
    try:
        HerePBS(tmp_path / "logs").submit(print, "one")
        HerePBS(tmp_path / "array").map_array(print, ["one", "two"])
    finally:
        os.umask(before)
    made = [path for folder in ("logs", "array") for path in (tmp_path / folder).iterdir()]
    assert {path.suffix for path in made} == {".pkl", ".sh"} and len(made) == 5
    assert not [path for path in made if path.stat().st_mode & 0o077]


def test_an_unknown_parameter_lists_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Unavailable parameter\(s\): \['quue'\](.|\n)*- queue \(default: None\)"):
        HerePBS(tmp_path).update_parameters(quue="x")
    with pytest.raises(ValueError, match="one task on one node: `torusrun run"):
        HerePBS(tmp_path).update_parameters(tasks_per_node=2)


def test_every_parameter_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "submitit.md").read_text()
    missing = [name for name in OWN if f"`{name}`" not in text]
    assert not missing, f"docs/guides/submitit.md does not describe {missing}"


@pytest.mark.parametrize(
    ("cluster", "variables", "job"),
    [
        ("pbs", {"PBS_JOBID": "7.srv"}, "7.srv"),
        ("pbs", {"PBS_JOBID": "7[3].srv", "PBS_ARRAY_ID": "7[].srv", "PBS_ARRAY_INDEX": "3"}, "7[].srv_3"),
        ("pbs", {"PBS_JOBID": "9.srv", "TORUSRUN_CONTINUES": "7.srv"}, "7.srv"),
        ("gridengine", {"JOB_ID": "7", "SGE_TASK_ID": "undefined"}, "7"),
        ("gridengine", {"JOB_ID": "7", "SGE_TASK_ID": "4"}, "7_3"),
    ],
)
def test_a_jobs_environment(cluster: str, variables: dict[str, str], job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SUBMITIT_EXECUTOR": cluster, **variables}.items():
        monkeypatch.setenv(name, value)
    env = environments.here()
    assert (env.name(), env.activated(), env.job_id, env.global_rank) == (cluster, True, job, 0)
    assert str(env).endswith("local_rank=0(1), node=0(1), global_rank=0(1))")


def test_the_ids_of_an_arrays_tasks_are_the_schedulers_own() -> None:
    assert cluster_job.Watcher(Client(schedulers.get("pbs"), 10)).known_as("7[].srv_3") == "7[3].srv"
    assert cluster_job.Watcher(Client(schedulers.get("gridengine"), 10)).known_as("7_3") == "7.4"


def test_one_command_reports_all_jobs_and_a_job_that_continues_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], *, timeout_s: float) -> Finished:
        asked.append(argv)
        jobs = "Job Id: 1.s\n    job_state = F\n    Exit_status = 0\n\nJob Id: 9.s\n    job_state = R\n\n"
        return Finished(tuple(argv), 0, jobs, "")

    monkeypatch.setattr("torusrun.orchestrator.base.process.run", run)
    watcher = cluster_job.Watcher(Client(schedulers.get("pbs"), 10))
    for job_id in ("1.s", "2.s"):
        watcher.register_job(job_id)
    watcher.stands_for("9.s", "2.s")
    assert watcher.get_state("2.s", mode="force") == State.RUNNING.value
    assert watcher.get_state("1.s", mode="cache") == State.COMPLETED.value
    assert len(asked) == 1 and set(asked[0][4:]) == {"1.s", "9.s"}, asked


def test_the_tasks_of_an_array_cost_one_command_however_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], *, timeout_s: float) -> Finished:
        asked.append(argv)
        return Finished(tuple(argv), 0, "".join(f"Job Id: {job}\n    job_state = Q\n\n" for job in argv[4:]), "")

    monkeypatch.setattr("torusrun.orchestrator.base.process.run", run)
    watcher = cluster_job.Watcher(Client(schedulers.get("pbs"), 10))
    for index in range(300):
        watcher.register_job(f"7[].s_{index}")
    watcher.update()
    assert {watcher.get_state(f"7[].s_{index}", mode="cache") for index in range(300)} == {State.PENDING.value}
    assert len(asked) == 1 and "7[299].s" in asked[0]
