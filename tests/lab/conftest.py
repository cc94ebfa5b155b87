"""Fixtures of the tests that build images, and run programs in them."""

from pathlib import Path

import pytest

from tests.e2e.lab_places import Slurm
from tests.lab.apptainer import ApptainerLab

from .image_builder import Builder
from .slurm import SlurmLab


@pytest.fixture(scope="session")
def builder(slurm_lab: SlurmLab, apptainer_lab: ApptainerLab) -> Builder:
    return Builder(Slurm(slurm_lab), apptainer_lab)


@pytest.fixture(scope="session")
def image(builder: Builder) -> Path:
    """The shipped image file for CPUs, built by the ordinary user; its packages come from a folder of wheels."""
    image_file = str(builder.place.lab.src / "containers" / "pytorch-cpu.yaml")
    said = builder.build(image_file, "--wheelhouse", str(builder.apptainer.wheelhouse))
    assert said.returncode == 0, said.stderr[-3000:]
    return Path(said.stdout.strip())


@pytest.fixture(scope="session")
def bare(builder: Builder) -> Path:
    """The example without a container, to compare with."""
    return builder.digits("--site", builder.site("images.yaml"))
