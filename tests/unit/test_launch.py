"""What starts the ranks, for every scheduler and site: commands, orders, ways to the other hosts, and words."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.gather import words
from torusrun.orchestrator.job.rank import identity
from torusrun.orchestrator.job.start import launch
from torusrun.orchestrator.job.start.launch_order import fabric
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.schedulers import launchers, remote_shell
from torusrun.orchestrator.schedulers.launchers import Launch, Pmi

OPEN_MPI = {4: "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...", 5: "mpirun (Open MPI) 5.0.11\n\nReport bugs to ..."}
MPICH = "HYDRA build details:\n    Version:                                 4.0.2\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\nCopyright 2003-2026"


def planned(tmp_path: Path, site: str, more: str = "") -> Plan:
    (tmp_path / "site.yaml").write_text(f"{site}\nnode: {{ranks: 2}}\npython: /opt/py\n")
    (tmp_path / "run.yaml").write_text(f"name: x\nsite: site.yaml\nnodes: 2\n{more or 'train: {}'}")
    return plan(tmp_path / "run.yaml")


def launched(tmp_path: Path, site: str, version: str = OPEN_MPI[4], more: str = "") -> list[str]:
    made = planned(tmp_path, site, more)
    return launch.command(made, RunFolder(tmp_path).attempt(1), launchers.named(made.site.launcher, version))


@pytest.mark.parametrize(
    ("program", "pmi", "one_node"),
    [
        ("srun", Pmi.SLURM, False), ("mpirun", Pmi.MPI, False), ("mpiexec.hydra", Pmi.MPI, False),
        ("spawn", Pmi.NOBODY, True),
    ],
)  # fmt: skip
def test_what_the_name_of_a_launcher_says(program: str, pmi: Pmi, one_node: bool) -> None:
    found = launchers.family(program)
    assert (found.pmi, found.one_node, found.built_in) == (pmi, one_node, program == "spawn")


def test_ranks_are_started_through_the_scheduler_or_as_the_site_says(tmp_path: Path) -> None:
    words = launched(tmp_path, "scheduler: pbs\nlauncher: mpirun")
    agent = words[words.index("plm_rsh_agent") + 1]
    assert agent.startswith("/opt/py -u /") and agent.endswith(
        "/entry/torusrun torusrun.orchestrator.schedulers.remote_shell pbs"
    )
    assert {"--leave-session-attached", "--oversubscribe"} <= set(words)
    words = launched(tmp_path, "scheduler: pbs\nlauncher: mpirun\nremote_shell: ssh")
    assert words[words.index("plm_rsh_agent") + 1] == "ssh"
    words = launched(tmp_path, 'scheduler: gridengine\nlauncher: mpirun\nask: ["-pe mpi {ranks}"]')
    assert "plm_rsh_agent" not in words, "Open MPI knows Grid Engine itself"
    words = launched(
        tmp_path, 'scheduler: gridengine\nlauncher: mpirun\nask: ["-pe mpi {ranks}"]\nremote_shell: scheduler'
    )
    assert words[words.index("plm_rsh_agent") + 1].endswith(".remote_shell gridengine")
    words = launched(tmp_path, "scheduler: pbs\nlauncher: mpirun", OPEN_MPI[5])
    assert "seq:file=hostfile:OVERSUBSCRIBE" in words and "plm_ssh_agent" in words
    assert not {"--oversubscribe", "--mca", "routed"} & set(words)


def test_hydra_goes_through_the_scheduler_wherever_that_has_a_way(tmp_path: Path) -> None:
    made = planned(tmp_path, 'scheduler: gridengine\nlauncher: mpirun\nask: ["-pe mpi {ranks}"]')
    attempt, hydra = RunFolder(tmp_path).attempt(1), launchers.named("mpirun", MPICH)
    words = launch.command(made, attempt, hydra)
    assert words[words.index("-launcher") + 1] == "rsh" and words[words.index("-launcher-exec") + 1] == "/opt/py"
    rest = launch.environment(made, attempt, hydra, {})["HYDRA_LAUNCHER_EXTRA_ARGS"]
    assert rest.endswith("/entry/torusrun torusrun.orchestrator.schedulers.remote_shell gridengine")
    words = launched(tmp_path, "scheduler: pbs\nlauncher: mpiexec.hydra\nremote_shell: ssh")
    assert words[words.index("-launcher") + 1] == "ssh" and "-launcher-exec" not in words


@pytest.mark.parametrize("program", ["mpirun", "mpiexec"])
def test_the_version_says_which_mpi_an_mpirun_belongs_to(program: str) -> None:
    found = [launchers.named(program, version) for version in (*OPEN_MPI.values(), MPICH, INTEL)]
    assert [type(one).__name__ for one in found] == ["OpenMPI", "OpenMPI", "Hydra", "Hydra"]
    assert {one.program for one in found} == {program}
    with pytest.raises(SiteError, match=f"{program} is neither Open MPI's nor Hydra.*says 'aprun 7.1'"):
        launchers.named(program, "aprun 7.1\n")
    with pytest.raises(SiteError, match=r"says 'pbs_version = 23.06.06'; load the module .* first on PATH in `setup`"):
        launchers.named(program, "pbs_version = 23.06.06\n")  # PBS puts an mpiexec of its own on PATH


def test_every_launcher_leaves_the_cores_to_the_wrappers(tmp_path: Path) -> None:
    unbound = {"srun": "--cpu-bind=none", "mpirun": "--bind-to none", "mpiexec.hydra": "-bind-to none"}
    for name, option in unbound.items():
        assert option in " ".join(launched(tmp_path, f"scheduler: slurm\nlauncher: {name}"))


def test_srun_keeps_the_mpi_of_the_site_for_a_command_alone(tmp_path: Path) -> None:
    site = "scheduler: slurm\nlauncher: srun"
    assert "--mpi=none" in launched(tmp_path, site), "the training needs none"
    own = launched(tmp_path, f"{site}\nlauncher_args: [--mpi=pmix]", more="code: none\ncommand: [./ring]\n")
    assert [word for word in own if word.startswith("--mpi")] == ["--mpi=pmix"]
    default = launched(tmp_path, site, more="code: none\ncommand: [./ring]\n")
    assert not [word for word in default if word.startswith("--mpi")]


def test_a_rank_without_a_number_says_which_variable_is_missing() -> None:
    assert identity(["R", "L"], {"R": "3", "L": "1"}) == (3, 1)
    with pytest.raises(SystemExit, match="its launcher did not set L"):
        identity(["R", "L"], {"R": "3"})


SHOW = 'echo "${!1} ${!2} $(hostname)"'


def started(folder: Path, name: str, version: str, host: str) -> list[str]:
    """What four ranks on this host say of themselves, started for real, in the order of their numbers."""
    (folder / "hostfile").write_text(f"{host}\n" * 4)
    launcher = launchers.named(name, version)
    told = Launch(sys.executable, 1, 4, 1, folder / "hostfile", passed=("PATH",))
    argv = [*launcher.command(told), "bash", "-c", SHOW, "show", *launcher.numbers]
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env = {**os.environ, **launcher.environment(told), **as_root}
    said = subprocess.run(argv, cwd=folder, env=env, text=True, capture_output=True, timeout=240, check=True)
    return sorted(said.stdout.splitlines())


@pytest.mark.parametrize("name", ["mpirun.openmpi", "mpiexec.hydra", "spawn"])
def test_ranks_get_their_numbers_in_the_order_of_the_host_file(name: str, tmp_path: Path) -> None:
    if name != "spawn" and not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    version = "" if name == "spawn" else subprocess.run([name, "--version"], text=True, capture_output=True).stdout
    host = os.uname().nodename
    assert started(tmp_path, name, version, host) == [f"{n} {n} {host}" for n in range(4)]


RECORDED = {
    "Open MPI 5.0.11": (
        "prterun noticed that process rank 1 with PID 15312 on node vm exited on\nsignal 9 (Killed).\n", {1: 9}
    ),
    "Intel MPI 2021.18": (
        "===\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 1 PID 15369 RUNNING AT vm\n"
        "=   KILLED BY SIGNAL: 9 (Killed)\n===\n", {1: 9}
    ),
    "MPICH 4.0.2": (
        "=   PID 4485 RUNNING AT vm\n=   EXIT CODE: 9\n"
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n", {}  # the PID is another rank's
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_the_ranks_that_a_launcher_saw_killed(name: str) -> None:
    text, killed = RECORDED[name]
    assert words(text).killed == killed


SLOTS = """torusrun: attempt 1 of x, on n1
--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the 4
slots that were requested by the application:

  sh
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (SLOTS, "There are not enough slots available in the system to satisfy the 4 slots that were requested by the "
                "application: sh"),
        ("a\nsrun: error: Unable to create step\n\n", "srun: error: Unable to create step"),
        ("torusrun: mine\n", ""), ("", ""), ("-" * 80, ""),
    ],
)  # fmt: skip
def test_the_last_words_of_a_launcher(text: str, last: str) -> None:
    assert words(text).last == last


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("pbs", ["pbs_tmrsh", "n2", "/usr/bin/env", "TORUSRUN_HOST=n2", "/bin/sh", "-c", "a; b 'c d'"]),
        ("gridengine", ["qrsh", "-inherit", "-nostdin", "n2", "a; b 'c d'"]),
    ],
)
def test_the_schedulers_own_remote_shells(name: str, argv: list[str]) -> None:
    assert remote_shell.command(schedulers.get(name), "n2", "a; b 'c d'") == argv


def test_a_scheduler_without_a_remote_shell_says_so() -> None:
    with pytest.raises(SiteError, match="local has no remote shell of its own"):
        remote_shell.command(schedulers.get("local"), "n2", "a")


def test_ucx_gets_the_port_that_a_site_names() -> None:
    assert fabric(["mlx5_0:2", "mlx5_1"], 0, 2)["UCX_NET_DEVICES"] == "mlx5_0:2"
    assert fabric(["mlx5_0:2", "mlx5_1"], 1, 2)["UCX_NET_DEVICES"] == "mlx5_1:1"
