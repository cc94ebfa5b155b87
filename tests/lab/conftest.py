"""Fixtures of the tests that build images and run programs in them."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.lab_places import Slurm
from tests.e2e.places import Said
from tests.lab import apptainer
from tests.lab.apptainer import ApptainerLab

from .image_builder import Builder
from .slurm import SlurmLab


@pytest.fixture(scope="session")
def builder(slurm_lab: SlurmLab, apptainer_lab: ApptainerLab) -> Builder:
    return Builder(Slurm(slurm_lab), apptainer_lab)


@pytest.fixture(scope="session", autouse=True)
def image_to_come(request: pytest.FixtureRequest) -> Iterator[Future[Said] | None]:
    """The build of `image`, which begins with the first test of the lab if any test of this session uses it."""
    used = any("image" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if not used or apptainer.why_not_here():
        yield None
        return
    builder: Builder = request.getfixturevalue("builder")
    image_file, site = builder.shipped(), builder.site("to-come.yaml")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(
            lambda: builder.build(image_file, "--wheelhouse", str(builder.apptainer.wheelhouse), site=site)
        )


@pytest.fixture(scope="session")
def image(builder: Builder, image_to_come: Future[Said]) -> Path:
    """The shipped image for CPUs, built by the ordinary user with packages from a folder of wheels."""
    said = image_to_come.result()
    assert said.returncode == 0, said.stderr[-3000:]
    return Path(said.stdout.strip())


@pytest.fixture(scope="session")
def bare(builder: Builder) -> Path:
    """The example without a container, to compare with."""
    return builder.digits("--site", builder.site("images.yaml"))
