"""The C++ compiler that tests of LARS need."""

from __future__ import annotations

import shutil

from tests.lab.cluster import packages
from torusrun.training.optim import cpp


def is_missing() -> bool:
    """Whether there is none. Root on Debian installs it, so that a machine without one does not skip the tests."""
    if not _found() and not packages.why_not_here():
        packages.install_missing({"g++": "g++"})
    return not _found()


def _found() -> bool:
    return any(map(shutil.which, cpp.COMPILERS))
