"""The gateway to other programs."""

import signal
import sys
from pathlib import Path

import pytest

from tests.unit.verbs import Patch
from tests.waiting import until
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import proc, process
from torusrun.orchestrator.base.environment import clean_environment, jobs_environment, which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.schedulers import KNOWN


def test_a_program_that_does_not_end_is_given_up() -> None:
    with pytest.raises(process.NoAnswer, match=r"did not answer within 0\.2 s"):
        process.run(["sleep", "20"], timeout_s=0.2)


def test_what_a_program_that_does_not_end_has_started_ends_with_it(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    for timeout_s in (0.5, 2.0, 8.0, 32.0):  # a busy machine needs longer to start its child
        with pytest.raises(process.NoAnswer):
            process.run(["sh", "-c", script], timeout_s=timeout_s)
        if pid := (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else "":
            break
    until(lambda: proc.state_of(int(pid)) in ("", "Z"), "its child to end")


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="no-such-program: not found on this machine"):
        process.run(["no-such-program"], timeout_s=1)
    with pytest.raises(SiteError, match="/gone: this folder is missing"):
        process.run(["true"], timeout_s=20, cwd=tmp_path / "gone")
    (tmp_path / "sinfo").write_bytes(b"\x7fELF, and no more")
    (tmp_path / "sinfo").chmod(0o700)
    with pytest.raises(SiteError, match="sinfo: cannot be started: Exec format error"):
        process.run([tmp_path / "sinfo"], timeout_s=20)


def test_a_program_that_is_in_no_folder_of_path_is_reported_with_what_to_do(tmp_path: Path) -> None:
    """A job's PATH is seldom the one of the shell that submitted it."""

    def start(program: str, cwd: Path) -> str:
        with pytest.raises(SiteError) as told:
            process.start([program], environment={"PATH": str(tmp_path)}, cwd=cwd, parent_death=signal.SIGKILL)
        return str(told.value)

    assert start("nosuch", tmp_path).startswith("nosuch: cannot be started: it is in no folder of PATH; give its full ")
    assert start("/nosuch", tmp_path) == "/nosuch: cannot be started: No such file or directory"
    assert start("nosuch", tmp_path / "gone") == "nosuch: cannot be started: No such file or directory"


def test_what_a_program_said_is_in_the_error_of_much_the_beginning_and_the_end() -> None:
    failed = process.run([sys.executable, "-c", "import sys; sys.exit('queue is closed')"], timeout_s=20)
    with pytest.raises(SiteError, match="submitting: .* ended with exit code 1: queue is closed"):
        failed.check("submitting")
    said = "the cause\n" + 100_000 * "x" + "\nthe end"
    with pytest.raises(SiteError, match=r"(?s)1: the cause.*x \[\.\.\.\] x.*the end$") as told:
        process.Finished(("sbatch",), 1, "", said).check("submitting")
    assert len(str(told.value)) < 5000


def test_arguments_reach_the_program_as_they_are() -> None:
    hostile = "$(id) `id` \"'\n;|&"
    said = process.run([sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", hostile], timeout_s=20)
    assert said.stdout == hostile


def test_what_an_enclosing_job_set_does_not_leak() -> None:
    inherited = {
        "SLURM_CPU_BIND": "x", "PMIX_RANK": "3", "OMPI_MCA_x": "y", "SQUEUE_PARTITION": "debug",
        "SCANCEL_STATE": "PENDING", "SACCT_FORMAT": "User", "SINFO_PARTITION": "debug", "SLURM_CONF": "/etc/s.conf",
        "PATH": "/bin",
    }  # fmt: skip
    assert clean_environment(inherited) == {"SLURM_CONF": "/etc/s.conf", "PATH": "/bin", "LC_ALL": "C"}


OWN = {
    "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "OMPI_MCA_btl": "tcp,self", "PE_ENV": "GNU", "PMI_DEBUG": "1",
    "SLURM_MPI_TYPE": "pmix", "SLURM_CPU_BIND": "none", "PBS_HOME": "/opt/pbs", "SQUEUE_FORMAT": "%i", "JOB_ID": "mine",
}  # fmt: skip


@pytest.mark.parametrize(
    ("outer", "lost"),
    [
        ({}, set()),
        ({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}, {"SLURM_MPI_TYPE", "SLURM_CPU_BIND"}),
        ({"PBS_JOBID": "7.s", "PBS_NODEFILE": "/x"}, {"PBS_HOME"}),
        ({"SGE_TASK_ID": "undefined", "PE_HOSTFILE": "/x", "SGE_O_HOST": "login"}, {"JOB_ID"}),
        ({"OMPI_COMM_WORLD_RANK": "1", "PMIX_ID": "x"}, {"OMPI_MCA_btl", "PMI_DEBUG"}),
        ({"PMI_RANK": "1"}, {"PMI_DEBUG"}),
    ],
    ids=["none", "slurm", "pbs", "gridengine", "openmpi", "pmi"],
)
def test_a_job_gets_the_users_own_variables_but_nothing_of_an_outer_job(outer: dict[str, str], lost: set[str]) -> None:
    ours = {"TORUSRUN_RANK": "0", "SUBMITIT_EXECUTOR": "x", "SBATCH_PARTITION": "debug"}
    kept = {name: value for name, value in OWN.items() if name not in lost}
    always = {"SLURM_CONF": "/etc/s.conf", "SGE_ROOT": "/sge", "TORUSRUN_RUNS": "/runs"}
    assert jobs_environment({**OWN, **outer, **ours, **always}) == {**kept, **always}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_variable_that_selects_a_cluster_reaches_its_commands(name: str) -> None:
    selecting = dict.fromkeys(schedulers.get(name).variables.cluster, "there")
    lost = selecting.keys() - clean_environment(selecting).keys()
    assert not lost, f"{lost}: add them to base.environment.KEPT, or declare them in `elsewhere`"


def test_the_environment_of_a_login_shell_has_what_the_profile_sets(home: Path, monkeypatch: Patch) -> None:
    (home / ".profile").write_text("echo Welcome\nexport PATH=/opt/slurm/bin:$PATH LINES='a\nb' PYTHONPATH=/theirs\n")
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    found = process.login_environment()
    assert found["PATH"].startswith("/opt/slurm/bin:") and found["LINES"] == "a\nb"
    assert found["PYTHONPATH"] == "/ours:/theirs"
    monkeypatch.setenv("SHELL", "/no/such/shell")
    assert process.login_environment()["HOME"] == str(home)


@pytest.mark.parametrize("path", ["", ":", ".", "bin", "../bin::"])
def test_a_path_of_the_working_directory_alone_finds_no_program_there(
    path: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "planted").write_text("#!/bin/sh\n")
        (folder / "planted").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert which("planted") is None and which("sh") is not None
    with pytest.raises(SiteError, match="planted: not found"):
        process.run(["planted"], timeout_s=20)
    with pytest.raises(SiteError, match="not found"):
        process.run(["sh", "-c", "planted"], timeout_s=20).check("starting")
