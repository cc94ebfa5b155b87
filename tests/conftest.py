"""Fixtures for all tests: a home for each test, and the lab, which starts once per session."""

import os
import random
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import machine
from tests.lab import apptainer
from tests.lab.apptainer import ApptainerLab, images
from tests.lab.cluster import Busy, Cluster, packages
from tests.lab.gridengine import GridEngineLab
from tests.lab.slurm import SlurmLab

settings.register_profile("untimed", deadline=None, print_blob=True)  # a busy machine is not a failure
settings.load_profile("untimed")

STARTED: list[SlurmLab] = []
# Each has one fixture that takes longer than its tests, or of which there is one on a machine.
ON_ONE_WORKER = ("tests/e2e/test_laptop.py", "tests/e2e/test_programs.py", "tests/unit/test_supervise.py")
ON_THE_CLUSTER = re.compile(r"tests/lab/|tests/e2e/.*(\[(slurm|gridengine|pbs)\b|_on_the_cluster)")
UNIT_S = 300  # the slowest unit test takes some seconds
OF_THE_CLUSTER = {"slurm_lab", "gridengine_lab", "apptainer_lab"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Labs start daemons and install packages, so nothing but this option runs them."""
    parser.addoption("--labs", action="store_true", help="run the labs instead: root, Debian; packages are installed")


def pytest_report_header(config: pytest.Config) -> str:
    return "labs: they alone" if config.getoption("--labs") else "labs: left out (`make test-labs` runs them)"


def pytest_configure(config: pytest.Config) -> None:
    """Compile the tested code once, as an installation does: else hundreds of processes would each compile it.

    Under nohup a process ignores SIGHUP, in the background of a script SIGINT, and so would all that the tests start.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        packages = [str(Path(__file__).parents[1] / name) for name in ("orchestrator", "training")]
        subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True, timeout=300)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need the lab, and check that their names show it: pytest-xdist knows only the names.

    Either the labs' tests remain or the others; those that need a program of a package remain with both. The tests that
    use images are last: the image with PyTorch is built while the others wait for the lab.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent / "lab"):
            item.add_marker("lab")
        if item.path.is_relative_to(Path(__file__).parent / "unit"):
            item.add_marker(pytest.mark.timeout(UNIT_S))
        if OF_THE_CLUSTER & set(getattr(item, "fixturenames", ())) and not ON_THE_CLUSTER.match(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid}: its name does not show that it needs the cluster (ON_THE_CLUSTER)")
    labs = config.getoption("--labs")
    config.hook.pytest_deselected(items=[item for item in items if not _belongs(item, labs)])
    items[:] = [item for item in items if _belongs(item, labs)]
    items.sort(key=lambda item: "builder" in getattr(item, "fixturenames", ()))


def _belongs(item: pytest.Item, labs: bool) -> bool:
    is_lab = item.get_closest_marker("lab") is not None
    return (is_lab or not set(_needs(item)).isdisjoint(packages.PACKAGES)) if labs else not is_lab


def _needs(item: pytest.Item) -> list[str]:
    return [need for marker in item.iter_markers("needs") for need in marker.args]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what this machine cannot do, or a program that it does not have."""
    for need in _needs(item):
        able = need in machine.ABILITIES
        _skip_for(machine.why_not(need) if able else packages.why_missing(need, item.config.getoption("--labs")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker runs all tests of the cluster, because there is only one; so with those of ON_ONE_WORKER."""
    from xdist.scheduler import LoadScopeScheduling

    class ClusterAndOthers(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if ON_THE_CLUSTER.match(nodeid):
                return "cluster"
            return next(filter(nodeid.startswith, ON_ONE_WORKER), nodeid)

    return ClusterAndOthers(config, log)


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """Restore the umask: a verb that a test calls in this process sets it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of this test. A failure shows the seed, and an option that repeats them."""
    given = request.config.getoption("--hypothesis-seed")
    seed = random.SystemRandom().randrange(2**32) if given is None else int(given)
    print(f"drawn with --hypothesis-seed={seed}")
    return random.Random(seed)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for the test: the developer's runs, sites and index are not read or written."""
    folder = tmp_path / "home"
    folder.mkdir()
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four nodes, shared by the labs of all schedulers."""
    _skip_for(packages.why_not_here())
    with skipped_if_busy(), Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_lab(cluster: Cluster) -> SlurmLab:
    lab = SlurmLab(cluster)
    lab.start()
    STARTED.append(lab)
    return lab


@pytest.fixture(autouse=True)
def one_failure_stays_one(request: pytest.FixtureRequest) -> Iterator[None]:
    """Report a node that Slurm has drained, and return it to service, so that later tests run."""
    yield
    if request.node.get_closest_marker("lab"):
        for lab in STARTED:
            for drained in lab.give_back_drained():
                warnings.warn(f"Slurm drained {drained}", stacklevel=1)


@pytest.fixture(scope="session")
def gridengine_lab(cluster: Cluster) -> GridEngineLab:
    lab = GridEngineLab(cluster)
    lab.start()
    return lab


@pytest.fixture(scope="session")
def apptainer_lab(slurm_lab: SlurmLab) -> ApptainerLab:
    """Apptainer in the PATH of the Slurm lab's user."""
    _skip_for(apptainer.why_not_here())
    lab = ApptainerLab()
    lab.install()
    slurm_lab.add_to_path(lab.path)
    slurm_lab.user_env["APPTAINER_MKSQUASHFS_ARGS"] = images.COMPRESSION  # gzip takes minutes on a busy machine
    return lab


@contextmanager
def skipped_if_busy() -> Iterator[None]:
    """Within it tests are skipped at once if another run has what there is once on a machine."""
    try:
        yield
    except Busy as busy:
        pytest.skip(str(busy))


def _skip_for(reason: str | None) -> None:
    if reason:
        pytest.skip(reason)
