"""The submitit plug-ins: what parameters become, what a job's environment tells, and what installing them costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import submitit
from submitit.core import plugins as of_submitit
from submitit.core import utils

from tests.unit.golden_text import assert_golden, differences
from tests.unit.verbs import Patch
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.words import fitting
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


def test_importing_submitit_loads_nothing_of_ours_and_choosing_an_executor_no_torch() -> None:
    loaded = "print({m.split('.')[0] for m in sys.modules} & {'torusrun', 'torch', 'rich'})"
    program = f"import sys, submitit; {loaded}; submitit.AutoExecutor.which(); {loaded}"
    said = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=300, check=True)
    assert said.stdout == "set()\n{'torusrun'}\n"


def test_the_script_of_a_function(monkeypatch: Patch) -> None:
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
        assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=300).returncode == 0


def function_script(cls: type[ClusterExecutor], **more: object) -> str:
    executor = cls("/shared/my logs/%j", python="/opt/env/bin/python")
    executor.update_parameters(
        name="try", timeout_min=90, nodes=1, cpus_per_task=3, gpus_per_node=2, mem_gb=1.5,
        queue="gpu", account="g1", directives=["-m e"], setup=["module load x"], teardown=["echo over"],
        signal_delay_s=60, **more,
    )  # fmt: skip
    return executor._text(executor.request()).replace(str(Path(__file__).parents[2]), "/opt/torusrun")


def test_what_a_job_runs_is_its_users_alone(tmp_path: Path, monkeypatch: Patch) -> None:
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
def test_a_jobs_environment(cluster: str, variables: dict[str, str], job: str, monkeypatch: Patch) -> None:
    for name, value in {"SUBMITIT_EXECUTOR": cluster, **variables}.items():
        monkeypatch.setenv(name, value)
    env = environments.here()
    assert (env.name(), env.activated(), env.job_id, env.global_rank) == (cluster, True, job, 0)
    assert str(env).endswith("local_rank=0(1), node=0(1), global_rank=0(1))")


def test_the_ids_of_an_arrays_tasks_are_the_schedulers_own() -> None:
    assert cluster_job.Watcher(Client(schedulers.get("pbs"), 10)).known_as("7[].srv_3") == "7[3].srv"
    assert cluster_job.Watcher(Client(schedulers.get("gridengine"), 10)).known_as("7_3") == "7.4"


def test_one_command_reports_all_jobs_and_a_job_that_continues_in_another(monkeypatch: Patch) -> None:
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


def test_the_tasks_of_an_array_cost_one_command_however_many(tmp_path: Path, monkeypatch: Patch) -> None:
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


# A submitit job inside: what its script passes on to other nodes, and how it goes on in a further try.


def test_a_requeued_task_of_an_array_continues_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PBS_JOBID": "7[3].s", "PBS_ARRAY_ID": "7[].s", "PBS_ARRAY_INDEX": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SUBMITIT_FOLDER", str(tmp_path))
    script = "#!/bin/bash\n#PBS -N x\n#PBS -J 0-4%2\n#PBS -W depend=afterok:1.s\numask 077\n:\n"
    (tmp_path / "7[].s_submission.sh").write_text(script)
    environments.PBSEnvironment()._requeue(2)
    again = tmp_path / "7[].s_3_again.sh"
    same = "export TORUSRUN_CONTINUES='7[].s_3'\nexport PBS_ARRAY_ID='7[].s'\nexport PBS_ARRAY_INDEX=3\n"
    assert again.read_text() == f"#!/bin/bash\n#PBS -N x\n{same}umask 077\n:\n"
    assert again.stat().st_mode & 0o077 == 0


@pytest.fixture
def qsub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """qsub and qdel that keep what they were given; the file they keep it in."""
    (tmp_path / "bin").mkdir()
    for name in ("qsub", "qdel"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/asked\necho 9.s\n')
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "asked"


def as_a_job(cls: type[ClusterExecutor], folder: Path, task: str, **variables: str) -> int:
    """Run a job's script here, with shell words in place of the python that runs the task; its exit code."""
    executor = cls(folder, python=task)
    executor.update_parameters(env=["PATH"], submit_args=["-P", "g1"])
    text = executor._text(executor.request()).replace("sleep 2", "sleep 0.1")
    return subprocess.run(["bash"], input=text, text=True, timeout=300, env={**os.environ, **variables}).returncode


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_continues_when_its_own_tasks_have_ended(cancelled: bool, tmp_path: Path, qsub: Path) -> None:
    logs = tmp_path / "logs"
    requeue = f"sh -c 'test ! -e {qsub} && touch {logs}/7.s_again.sh'"
    if cancelled:
        logs.mkdir()
        (logs / "7.s_cancelled").touch()
    assert as_a_job(HerePBS, logs, requeue, PBS_JOBID="7.s") == 0
    asked = qsub.read_text() if qsub.exists() else ""
    assert asked == ("" if cancelled else f"qsub -P g1 {logs}/7.s_again.sh\n")
    assert (logs / "7.s_continues_as").exists() is not cancelled


def test_a_job_that_is_cancelled_while_it_submits_the_next_deletes_that(tmp_path: Path, qsub: Path) -> None:
    logs = tmp_path / "logs"
    (qsub.parent / "bin" / "qsub").write_text(f"#!/bin/sh\ntouch {logs}/7.s_cancelled\necho 9.s\n")
    as_a_job(HerePBS, logs, f"sh -c 'touch {logs}/7.s_again.sh'", PBS_JOBID="7.s")
    assert qsub.read_text() == "qdel 9.s\n"


def test_a_job_that_cannot_continue_fails_and_says_so(tmp_path: Path, qsub: Path) -> None:
    logs = tmp_path / "logs"
    (qsub.parent / "bin" / "qsub").write_text("#!/bin/sh\necho 'qsub: Unauthorized Request' >&2\nexit 159\n")
    assert as_a_job(HerePBS, logs, f"sh -c 'touch {logs}/7.s_again.sh'", PBS_JOBID="7.s") == 1
    log = (logs / "7.s_0_log.err").read_text()
    assert "Unauthorized Request" in log and "cannot continue: qsub on" in log and "exit code 159" in log


def test_grid_engine_runs_it_again_after_the_exit_code(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for task, code in ((f"sh -c 'touch {logs}/7_again; exit 1'", 99), ("sh -c 'exit 1'", 1)):
        assert as_a_job(HereGridEngine, logs, task, JOB_ID="7", SGE_TASK_ID="undefined") == code


def test_a_job_that_was_cancelled_as_it_started_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBS says of it that it failed, with the exit status of SIGKILL."""
    recorded = Path(__file__).parent / "recorded" / "openpbs" / "wide" / "qdel_in_its_first_second.txt"
    text = recorded.read_text()
    job_id = text.split("Job Id: ")[1].split()[0]
    said = {"qstat": text.partition("--- stdout\n")[2], "qdel": ""}
    monkeypatch.setattr(
        "torusrun.orchestrator.base.process.run", lambda argv, timeout_s: Finished(tuple(argv), 0, said[argv[0]], "")
    )
    job = HerePBS(tmp_path)._job(job_id)
    job.watcher = cluster_job.Watcher(Client(schedulers.get("pbs"), 10))
    job.watcher.register_job(job_id)
    assert job.watcher.get_state(job_id, mode="force") == State.FAILED.value
    job.cancel()
    assert job.state == State.CANCELLED.value


@pytest.mark.parametrize(
    ("name", "fit"),
    [("a-b_c.d+e", "a-b_c.d+e"), ("my job/2", "my_job_2"), ("1st", "job_1st"), ("Prüfung ß", "Prufung"), ("", "job_"),
     ("a:b@c\\d*e?f", "a_b_c_d_e_f"), ("x\n#PBS -q y", "x__PBS_-q_y"), ("-x", "job_-x"), ("日本", "job_")],
)  # fmt: skip
def test_a_name_is_made_to_fit(name: str, fit: str) -> None:
    assert fitting(name) == fit
    assert len(fitting(name * 300)) <= 200


def test_every_task_with_a_folder_of_its_own_finds_the_script(tmp_path: Path, qsub: Path) -> None:
    """A task goes on by its array's script, and JobPaths looks for that in the task's folder."""
    (qsub.parent / "bin" / "qsub").write_text("#!/bin/sh\necho '7[].s'\n")
    jobs = HerePBS(tmp_path / "logs" / "%j").map_array(print, ["one", "two"])
    assert [job.paths.submission_file.parent.name for job in jobs] == ["7[].s_0", "7[].s_1"]
    for job in jobs:
        assert "#PBS -J 0-1" in job.paths.submission_file.read_text()


@pytest.mark.parametrize(("lag_s", "unsaid"), [(-1.0, State.LOST), (30.0, State.UNKNOWN)])
@pytest.mark.parametrize(("outcome", "state"), [("success", State.COMPLETED), ("error", State.FAILED)])
def test_a_job_that_nobody_knows_any_more_ended_as_its_result_says(
    lag_s: float, unsaid: State, outcome: str, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that keeps no history, as most do."""
    monkeypatch.setattr(
        "torusrun.orchestrator.base.process.run", lambda argv, timeout_s: Finished(tuple(argv), 153, "", "unknown")
    )
    monkeypatch.setattr(cluster_job, "RECORDS_LAG_S", lag_s)
    job = HerePBS(tmp_path)._job("7.s")
    job.watcher = cluster_job.Watcher(Client(schedulers.get("pbs"), 10))
    job.watcher.register_job("7.s")
    job.watcher.update()
    assert job.state == unsaid.value
    utils.cloudpickle_dump((outcome, "what it gave"), job.paths.result_pickle)
    assert job.state == state.value


@pytest.mark.parametrize("recorded", [State.FAILED, State.TIMEOUT, State.CANCELLED])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_without_a_result_that_nobody_knows_any_more_ended_as_its_script_says(
    recorded: State, cancelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "torusrun.orchestrator.base.process.run", lambda argv, timeout_s: Finished(tuple(argv), 153, "", "unknown")
    )
    job = HerePBS(tmp_path)._job("7.s")
    job.watcher = cluster_job.Watcher(Client(schedulers.get("pbs"), 10))
    assert not job.done() and job.state == State.UNKNOWN.value, "its result may be on its way"
    if cancelled:
        job._cancelled.touch()
        assert job.done() and job.state == State.CANCELLED.value, "nothing more can come of it"
    (tmp_path / "7.s_ended").write_text(f"{recorded.value}\n")
    assert job.done() and job.state == (State.CANCELLED if cancelled else recorded).value


@pytest.mark.parametrize(
    ("task", "recorded"), [("kill -9 $$", "FAILED"), ("kill -TERM $PPID; exit 1", "CANCELLED"), ("true", None)]
)
def test_a_script_records_how_it_ended_badly(task: str, recorded: str | None, tmp_path: Path) -> None:
    (tmp_path / "7.s_ended").write_text("of an earlier run")
    (tmp_path / "task.sh").write_text(task)
    code = as_a_job(HerePBS, tmp_path, f"sh {tmp_path}/task.sh", PBS_JOBID="7.s")
    assert (code == 0) is (recorded is None)
    ended = tmp_path / "7.s_ended"
    assert (ended.read_text().strip() if ended.exists() else None) == recorded


def test_a_job_is_lost_once_it_was_unknown_without_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may be unknown for a moment when it is new, and again when its scheduler runs it once more."""
    said = [State.LOST, State.RUNNING, State.LOST, State.LOST]
    now_s = [0.0]
    client = Client(schedulers.get("gridengine"), 10)
    monkeypatch.setattr(Client, "poll", lambda self, jobs: {job: Status(said.pop(0), "") for job in jobs})
    monkeypatch.setattr(cluster_job.time, "time", lambda: now_s[0])
    watcher = cluster_job.Watcher(client)
    watcher.register_job("7")
    seen = []
    for now_s[0] in (0.0, 40.0, 80.0, 111.0):
        watcher.update()
        seen.append(watcher._info_dict["7"]["State"])
    assert seen == ["UNKNOWN", "RUNNING", "UNKNOWN", "LOST"]
