"""The checks as a whole: what they refuse, what they leave open, and in which order they tell it."""

from dataclasses import replace

import pytest

from tests.unit.containers.recorded_facts import (
    BY_MPIRUN,
    COMMAND,
    CPU_TORCH,
    CUDA_TORCH,
    HOST,
    HOST_MPI,
    MPICH,
    ON_CPUS,
    TRAINING,
)
from torusrun.orchestrator.images.checks.answers import Library
from torusrun.orchestrator.images.checks.check import check, refused
from torusrun.orchestrator.images.checks.facts import ImageFacts


@pytest.mark.parametrize("image", [CUDA_TORCH, CPU_TORCH], ids=["GPUs", "CPUs"])
def test_a_good_set_fits_as_a_whole(image: ImageFacts) -> None:
    wanted = replace(TRAINING if image.cuda else ON_CPUS, hcas=("mlx5_0",))
    found = check(wanted, HOST, image)
    assert {finding.outcome for finding in found} == {"fits"} and len(found) > 8


def test_what_is_not_known_neither_fits_nor_refuses() -> None:
    """Of an image that nobody could look into, nothing that is inside is told as fitting."""
    unseen = ImageFacts("/shared/x.sif", machine="x86_64", starts=None)
    for wanted in (TRAINING, replace(COMMAND, host_mpi=HOST_MPI, hcas=("mlx5_0",), uses_gpus=True)):
        found = check(wanted, replace(HOST, driver=None), unseen)
        assert not refused(found)
        outside = {
            "runtime-old",
            "bind-missing",
            "image-unreadable",
            "image-not-shared",
            "image-architecture",
        }
        of_mpi = {"mpi-missing"} if wanted.training else set()  # the training calls none, whatever the image has
        assert {finding.kind for finding in found if finding.outcome == "fits"} <= outside | of_mpi


def test_a_program_that_is_linked_with_no_mpi_is_only_warned() -> None:
    script = replace(MPICH, program=Library("/usr/bin/python3"))
    (finding,) = [f for f in check(COMMAND, BY_MPIRUN, script) if f.kind == "mpi-family"]
    assert finding.severity == "warning"
    assert not [f for f in check(TRAINING, BY_MPIRUN, MPICH) if f.kind == "mpi-family"], "the training calls no MPI"


def test_errors_come_first_and_what_fits_last() -> None:
    found = check(TRAINING, replace(HOST, modules_failed="x"), replace(CPU_TORCH, shared=False))
    assert [f.severity for f in found if f.outcome != "fits"] == ["error", "warning", "note"]
    assert [f.outcome for f in found[3:]] == ["fits"] * (len(found) - 3)
