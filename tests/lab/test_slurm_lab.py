"""The lab itself: it must behave like a cluster, or the tests that use it prove nothing."""

from __future__ import annotations

import pytest

from tests.waiting import until

from .slurm import SlurmLab

SHUFFLED = ["node3", "node1", "node4", "node2"]
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def test_all_nodes_are_idle(slurm_lab: SlurmLab) -> None:
    assert slurm_lab.node_states() == dict.fromkeys(["node1", "node2", "node3", "node4"], "idle")


def test_the_user_runs_on_every_node(slurm_lab: SlurmLab) -> None:
    out = slurm_lab.run_as_user(["srun", "-N4", "sh", "-c", "echo $(id -un) $(hostname)"], check=True).stdout
    assert sorted(out.splitlines()) == [f"labuser {node}" for node in slurm_lab.nodes]


def test_a_hostfile_keeps_its_order(slurm_lab: SlurmLab) -> None:
    (slurm_lab.home / "hosts").write_text("\n".join(SHUFFLED) + "\n")
    out = slurm_lab.run_as_user(
        ["srun", "-n4", "--distribution=arbitrary", "sh", "-c", "echo $SLURM_PROCID $(hostname)"],
        env={"SLURM_HOSTFILE": "hosts"},
        check=True,
    ).stdout
    assert sorted(out.splitlines()) == [f"{rank} {node}" for rank, node in enumerate(SHUFFLED)]


def test_gpus_are_given(slurm_lab: SlurmLab) -> None:
    out = slurm_lab.run_as_user(["srun", "-N1", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES"]).stdout
    assert out.strip() == "0,1"


def test_pmix_starts_ranks(slurm_lab: SlurmLab) -> None:
    argv = ["srun", "--mpi=pmix", "-N2", "-n4", "printenv", "PMIX_RANK"]
    out = slurm_lab.run_as_user(argv, check=True).stdout
    assert sorted(out.split()) == ["0", "1", "2", "3"]


def test_mpirun_follows_a_rank_file(slurm_lab: SlurmLab) -> None:
    ranks = [f"rank {rank}={node} slot=0-1" for rank, node in enumerate(["node2", "node2", "node1", "node1"])]
    (slurm_lab.home / "ranks").write_text("\n".join(ranks) + "\n")
    command = "mpirun --rankfile ranks -np 4 sh -c 'echo $OMPI_COMM_WORLD_RANK $(hostname)'"
    job = submit(slurm_lab, command, "-wnode[1-2]", "--ntasks-per-node=2")
    assert wait_for_end(slurm_lab, job) == "COMPLETED"
    assert sorted(output(slurm_lab, job).splitlines()) == ["0 node2", "1 node2", "2 node1", "3 node1"]


def test_torch_reduces_over_eight_ranks(slurm_lab: SlurmLab) -> None:
    job = submit(
        slurm_lab,
        f"srun {slurm_lab.python} {slurm_lab.src}/tests/lab/allreduce.py",
        "-N4",
        "--ntasks-per-node=2",
        "--mem=4000",
        "--gres=gpu:2",
        env={"MASTER_ADDR": "node1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"},
    )
    assert wait_for_end(slurm_lab, job) == "COMPLETED"
    ranks = sorted(output(slurm_lab, job).splitlines())
    assert ranks == [f"{rank} node{rank // 2 + 1} 28" for rank in range(8)]


def test_too_much_memory_is_said_to_be_so(slurm_lab: SlurmLab) -> None:
    if not slurm_lab.has_cgroups:
        pytest.skip("control groups (v1) cannot be made here")
    job = submit(slurm_lab, "exec python3 -c 'x = bytearray(300 << 20)'", "-N1", "--mem=100")
    assert wait_for_end(slurm_lab, job) == "OUT_OF_MEMORY"


def test_a_job_is_cancelled(slurm_lab: SlurmLab) -> None:
    job = submit(slurm_lab, "srun sleep 100", "-N2")
    until(lambda: state(slurm_lab, job) == "RUNNING", f"job {job} to begin")
    slurm_lab.run_as_user(["scancel", job], check=True)
    assert wait_for_end(slurm_lab, job) == "CANCELLED"


def test_the_closed_and_the_short_partition(slurm_lab: SlurmLab) -> None:
    submit(slurm_lab, "true", "-pclosed", "-N1")
    out = slurm_lab.run_as_user(["squeue", "-h", "-p", "closed", "-o", "%T %r"], check=True).stdout
    assert out.split() == ["PENDING", "PartitionDown"]
    slurm_lab.run_as_user(["scancel", "-p", "closed"], check=True)
    assert slurm_lab.run_as_user(["sinfo", "-h", "-p", "short", "-o", "%l"]).stdout.strip() == "2:00"


def test_jobs_are_taken_without_accounting(slurm_lab: SlurmLab) -> None:
    slurm_lab.stop_slurmdbd()
    try:
        assert slurm_lab.run_as_user(["sacct"]).returncode == 1
        job = submit(slurm_lab, "true", "-N1")
    finally:
        slurm_lab.start_slurmdbd()
    assert wait_for_end(slurm_lab, job) == "COMPLETED"


def test_the_controller_comes_back_with_its_jobs(slurm_lab: SlurmLab) -> None:
    job = submit(slurm_lab, "sleep 100", "-N1")
    until(lambda: state(slurm_lab, job) == "RUNNING", f"job {job} to begin")
    slurm_lab.server.stop()
    try:
        assert "Unable to contact slurm controller" in slurm_lab.run_as_user(["squeue"]).stderr
    finally:
        slurm_lab.server.start()
    assert slurm_lab.run_as_user(["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip() == "RUNNING"
    slurm_lab.run_as_user(["scancel", job], check=True)


def test_a_node_loses_its_power(slurm_lab: SlurmLab) -> None:
    job = submit(slurm_lab, "srun sleep 100", "-wnode[3-4]", "--no-requeue")
    until(lambda: state(slurm_lab, job) == "RUNNING", f"job {job} to begin")
    slurm_lab.kill_node("node4")
    try:
        assert wait_for_end(slurm_lab, job, timeout_s=40) == "NODE_FAIL"
        assert slurm_lab.node_states()["node4"] == "down*"
    finally:
        slurm_lab.start_node("node4")
    assert slurm_lab.run_as_user(["srun", "-wnode4", "hostname"]).stdout == "node4\n"
    assert slurm_lab.exec_on("node4", ["hostname"]).stdout == "node4\n"


def submit(lab: SlurmLab, command: str, *options: str, env: dict[str, str] | None = None) -> str:
    argv = ["sbatch", "--parsable", "--output=%j.out", "--error=%j.err", *options, f"--wrap={command}"]
    return lab.run_as_user(argv, env=env, check=True).stdout.strip()


def output(lab: SlurmLab, job: str) -> str:
    return (lab.home / f"{job}.out").read_text()


def state(lab: SlurmLab, job: str) -> str:
    """The state in accounting; an empty string until accounting knows the job."""
    out = lab.run_as_user(["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"]).stdout
    return (out.split() or [""])[0]


def wait_for_end(lab: SlurmLab, job: str, timeout_s: float = 30) -> str:
    return until(lambda: (s := state(lab, job)) in ENDED and s, f"the end of job {job}", timeout_s)
