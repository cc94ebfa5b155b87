"""Whether the image has the programs that the run starts: Python, torch and the training, or the command's own."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.images.checks.compat import OLDEST_PYTHON, OLDEST_TORCH, version
from torusrun.orchestrator.images.checks.findings import Finding, fits, unknown
from torusrun.orchestrator.images.checks.needs import Wanted
from torusrun.orchestrator.images.checks.sourced_facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.runtime import dotted


def program(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Whether the image has the program that a command names first."""
    if wanted.training:
        return
    evidence = image.evidence("program")
    if image.no_program:
        yield Finding("program-missing", "the command's program is not in the image", evidence=evidence)
    elif image.program:
        yield fits("program-missing", f"the image has {image.program.path}", evidence)
    else:
        yield unknown("program-missing", "whether the image has the command's program", evidence)


def wrapper(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Pyxis starts the ranks' wrapper inside the image, so any image needs a Python."""
    if not wanted.pyxis:
        return
    evidence, needs = image.evidence("python"), f"the wrapper of a rank needs {dotted(OLDEST_PYTHON)} or newer"
    if image.has_python is False:
        yield Finding("pyxis-python", "the image has no python3", evidence=evidence)
    elif not image.python:
        yield unknown("pyxis-python", f"which Python the image has: {needs}", evidence)
    elif version(image.python) < OLDEST_PYTHON:
        yield Finding("pyxis-python", f"Python {image.python} of the image is too old: {needs}", evidence=evidence)
    else:
        yield fits("pyxis-python", f"the image has Python {image.python}: {needs}", evidence)


def python(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """torusrun's training needs a Python that is new enough, with torch; a command needs neither."""
    if not wanted.training:
        return
    evidence = image.evidence("python")
    if image.has_python is False:
        yield Finding("python-missing", "the image has no python3", evidence=evidence)
        return
    if not image.python:
        yield unknown("python-old", "whether the image's Python is new enough", image.evidence("torch"))
        return
    needs = f"torusrun's training needs {dotted(OLDEST_PYTHON)} or newer"
    if version(image.python) < OLDEST_PYTHON:
        yield Finding("python-old", f"Python {image.python} of the image is too old: {needs}", evidence=evidence)
    else:
        yield fits("python-old", f"the image has Python {image.python}: {needs}", evidence)
    yield from _torch(image)
    yield from _training(image)


def _torch(image: ImageFacts) -> Iterator[Finding]:
    evidence = image.evidence("torch")
    if image.torch_error and "No module named 'torch'" in image.torch_error:
        yield Finding("torch-missing", "the image's Python has no torch", evidence=evidence)
    elif image.torch_error:
        yield Finding("torch-broken", f"torch does not import in the image: {image.torch_error}", evidence=evidence)
    elif not image.torch:
        yield unknown("torch-broken", "whether torch imports in the image", evidence)
    elif version(image.torch) < OLDEST_TORCH:
        needs = f"torusrun's training needs {dotted(OLDEST_TORCH)} or newer"
        yield Finding("torch-old", f"torch {image.torch} of the image is too old: {needs}", evidence=evidence)
    else:
        yield fits("torch-old", f"torch {image.torch} imports in the image", evidence)


def _training(image: ImageFacts) -> Iterator[Finding]:
    evidence = image.evidence("training")
    if image.training is False:
        yield Finding("training-missing", "the package 'training' is not found in the image", evidence=evidence)
    elif image.training:
        yield fits("training-missing", "the image's Python finds the package 'training'", evidence)
    else:
        yield unknown("training-missing", "whether the image's Python finds the package 'training'", evidence)
