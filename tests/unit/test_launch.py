"""What starts the ranks, for every scheduler and site: mpirun's way to the other hosts."""

from pathlib import Path

import pytest

from orchestrator import schedulers
from orchestrator.errors import SiteError
from orchestrator.job.launch import command
from orchestrator.placement.grid import Grid
from orchestrator.placement.mapping import place
from orchestrator.plans.plan import Plan, plan
from orchestrator.runs.folder import RunFolder


def launched(tmp_path: Path, site: str) -> list[str]:
    (tmp_path / "site.yaml").write_text(f"{site}\nnode: {{ranks: 2}}\npython: /opt/py\n")
    (tmp_path / "run.yaml").write_text("name: x\nsite: site.yaml\nnodes: 2\n")
    made: Plan = plan(tmp_path / "run.yaml")
    return command(made, RunFolder(tmp_path).attempt(1), place(Grid(2, 2), ["n1", "n2"], 2))


def test_under_pbs_mpirun_goes_through_the_scheduler(tmp_path: Path) -> None:
    words = launched(tmp_path, "scheduler: pbs\nlauncher: mpirun")
    agent = words[words.index("plm_rsh_agent") + 1]
    assert agent.startswith("/opt/py /") and agent.endswith("/orchestrator/schedulers/remote.py pbs")
    assert {"--leave-session-attached", "--rankfile", "--oversubscribe"} <= set(words)


def test_a_site_says_how_its_nodes_are_reached(tmp_path: Path) -> None:
    words = launched(tmp_path, "scheduler: pbs\nlauncher: mpirun\nremote_shell: ssh")
    assert words[words.index("plm_rsh_agent") + 1] == "ssh"
    words = launched(tmp_path, 'scheduler: gridengine\nlauncher: mpirun\nask: ["-pe mpi {ranks}"]')
    assert "plm_rsh_agent" not in words, "Open MPI knows Grid Engine itself"
    words = launched(
        tmp_path, 'scheduler: gridengine\nlauncher: mpirun\nask: ["-pe mpi {ranks}"]\nremote_shell: scheduler'
    )
    assert words[words.index("plm_rsh_agent") + 1].endswith("remote.py gridengine")


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("pbs", ["pbs_tmrsh", "n2", "/bin/sh", "-c", "a; b 'c d'"]),
        ("gridengine", ["qrsh", "-inherit", "-nostdin", "n2", "a; b 'c d'"]),
    ],
)
def test_the_schedulers_own_remote_shells(name: str, argv: list[str]) -> None:
    assert schedulers.get(name).remote_command("n2", "a; b 'c d'") == argv


def test_a_scheduler_without_a_remote_shell_says_so() -> None:
    with pytest.raises(SiteError, match="slurm has no remote shell of its own"):
        schedulers.get("slurm").remote_command("n2", "a")
