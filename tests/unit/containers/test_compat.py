"""The tables of what fits with what."""

import re
from pathlib import Path

import pytest

from torusrun.orchestrator.images.checks import answers


@pytest.mark.parametrize(
    ("architectures", "gpu", "runs"),
    [
        (("sm_70",), "sm_70", True),
        (("sm_80",), "sm_86", True),  # a cubin runs on later minors of its major
        (("sm_86",), "sm_80", False),
        (("sm_70",), "sm_80", False),
        (("compute_70",), "sm_90", True),  # PTX is compiled for what came later
        (("compute_80",), "sm_70", False),
        (("sm_90a",), "sm_90", False),
        (("sm_50", "sm_60"), "sm_61", True),
        (("sm_75", "sm_80", "sm_100"), "sm_70", False),
    ],
)
def test_kernels_and_gpus(architectures: tuple[str, ...], gpu: str, runs: bool) -> None:
    assert answers.runs_on(architectures, gpu) == runs


def test_drivers() -> None:
    floor = {
        text: answers.oldest_driver(answers.version(text)) for text in ("8.0", "9.0", "10.1", "11.8", "12.6", "14.0")
    }
    assert floor == {
        "8.0": None, "9.0": (384, 81), "10.1": (418, 39), "11.8": (450, 80, 2), "12.6": (525, 60, 13), "14.0": None,
    }  # fmt: skip


def test_the_oldest_versions_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    python, torch = re.search(r'requires-python = ">=([\d.]+)"', text), re.search(r'"torch>=([\d.]+)"', text)
    assert python and answers.version(python[1]) == answers.OLDEST_PYTHON
    assert torch and answers.version(torch[1]) == answers.OLDEST_TORCH
