"""The suite itself: no lab starts unasked, and what a machine cannot do is known before anything is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

import pytest

from tests.lab.cluster.processes import Busy, taken
from tests.unit.verbs import Patch

TESTS = Path(__file__).resolve().parents[1]
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def said(*argv: str) -> str:
    return subprocess.run(argv, cwd=TESTS.parent, text=True, capture_output=True, timeout=280, check=True).stdout


@pytest.mark.needs("users")
def test_root_without_capabilities_has_no_lab() -> None:
    program = "from tests.lab.cluster import packages; print(packages.why_not_here())"
    assert "no lab here: cannot become another user" in said(*WITHOUT_CAPABILITIES, sys.executable, "-c", program)


@pytest.mark.parametrize(("option", "kept"), [([], "unit"), (["--labs"], "lab")])
def test_labs_run_alone_and_only_if_they_are_asked_for(option: list[str], kept: str, monkeypatch: Patch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    paths = {"lab": "tests/lab/test_preflight.py", "unit": "tests/unit/test_plain.py"}
    listed = said(sys.executable, "-m", "pytest", "--collect-only", "-q", *option, *paths.values())
    assert set(re.findall(r"^(.*?)::", listed, re.MULTILINE)) == {paths[kept]}


def test_a_lab_that_another_run_has_is_refused_at_once(tmp_path: Path, monkeypatch: Patch) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "another")
    held = taken(lock)
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "this")
    with pytest.raises(Busy, match="another run has the lab in use"):
        taken(lock)
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "another")
    with ThreadPoolExecutor(1) as pool, held:
        waiting = pool.submit(taken, lock)  # a worker of the run that has it
        with pytest.raises(NotYet):
            waiting.result(timeout=0.05)
    waiting.result(timeout=240).close()


def test_no_test_takes_the_number_of_root_for_its_rights() -> None:
    """Root in a container may have no rights: mark the test `needs("users")` or `needs("mount")`."""
    asks = re.compile(r"skipif\(.*getuid\(|if os\.gete?uid\(\).*:\n +(pytest\.skip|return)")
    assert not [str(path) for path in TESTS.rglob("test_*.py") if asks.search(path.read_text())]
