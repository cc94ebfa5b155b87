"""What the tests on the lab's Slurm rely on, and torusrun's runs there do not show."""

import pytest

from tests.waiting import until

from .slurm import SlurmLab


def test_all_nodes_are_in_service(slurm_lab: SlurmLab) -> None:
    for node in slurm_lab.nodes:
        slurm_lab.wait_in_service(node, 240)


def test_gpus_are_given(slurm_lab: SlurmLab) -> None:
    out = slurm_lab.run_as_user(["srun", "-N1", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES"]).stdout
    assert out.strip() == "0,1"


def test_too_much_memory_is_reported(slurm_lab: SlurmLab) -> None:
    if not slurm_lab.has_cgroups:
        pytest.skip("control groups (v1) cannot be made here")
    greedy = "--wrap=exec python3 -c 'x = bytearray(300 << 20)'"
    argv = ["sbatch", "--parsable", "--output=/dev/null", "-N1", "--mem=100", greedy]
    job = slurm_lab.run_as_user(argv, check=True).stdout.strip()
    ask = ["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"]
    until(lambda: slurm_lab.run_as_user(ask).stdout.strip() == "OUT_OF_MEMORY", f"job {job} to be out of memory")
