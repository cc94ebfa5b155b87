"""The ordinary user's view: its Python, and its environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .processes import LabError
from .settings import Settings


def python(repo: Path, src: Path) -> str:
    """The user's path of this interpreter: one inside the checkout is below `src`."""
    prefix = Path(sys.prefix)
    if prefix.is_relative_to(repo):
        prefix = src / prefix.relative_to(repo)
    name = "python" if (Path(sys.prefix) / "bin" / "python").exists() else "python3"
    return str(prefix / "bin" / name)


def environment(settings: Settings, interpreter: str) -> dict[str, str]:
    path = f"{Path(interpreter).parent}:/usr/local/bin:/usr/bin:/bin"
    return {
        "HOME": str(settings.home),
        "USER": settings.user,
        "LOGNAME": settings.user,
        "SHELL": "/bin/bash",
        "PATH": path,
        "PYTHONPATH": str(settings.src / "src"),
    }


def check_python(interpreter: str, settings: Settings, env: dict[str, str]) -> None:
    who = {"user": settings.user, "group": settings.user, "extra_groups": [], "cwd": settings.home, "env": env}
    try:
        done = subprocess.run([interpreter, "-c", "import sys"], text=True, capture_output=True, timeout=60, **who)
        trouble = done.stderr if done.returncode else ""
    except PermissionError as error:
        trouble = str(error)
    if trouble:
        raise LabError(
            f"an ordinary user cannot run {interpreter}: {trouble.strip()}\n"
            "Use a Python that everybody can read: make test-labs PYTHON=/usr/bin/python3"
        )
