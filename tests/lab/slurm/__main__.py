"""The lab by hand: python -m tests.lab.slurm up | shell | down."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from .lab import SlurmLab
from .processes import LabError
from .settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.slurm", description=__doc__)
    parser.add_argument("verb", choices=["up", "shell", "down"])
    parser.add_argument("--root", type=Path, default=Settings.root)
    parser.add_argument("--nodes", type=int, default=Settings.node_count)
    chosen = parser.parse_args()
    lab = SlurmLab(Settings(root=chosen.root, node_count=chosen.nodes))
    try:
        return {"up": up, "shell": shell, "down": down}[chosen.verb](lab)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def up(lab: SlurmLab) -> int:
    begin = time.monotonic()
    lab.start()
    print(f"{len(lab.nodes)} nodes up in {time.monotonic() - begin:.1f} s: python -m tests.lab.slurm shell")
    return 0


def shell(lab: SlurmLab) -> int:
    """A shell of the lab's user on the login side."""
    if not lab.site_file.exists():
        raise LabError("no lab is up: python -m tests.lab.slurm up")
    return subprocess.call(["bash", "--norc"], **lab.as_user(None, {"PS1": "labuser@login$ "}))


def down(lab: SlurmLab) -> int:
    lab.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
