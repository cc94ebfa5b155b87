"""The labs by hand: python -m tests.lab up|shell slurm|gridengine, python -m tests.lab down."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from .cluster import Cluster, Lab, LabError
from .gridengine import GridEngineLab
from .slurm import SlurmLab

LABS: dict[str, type[Lab]] = {"slurm": SlurmLab, "gridengine": GridEngineLab}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("verb", choices=["up", "shell", "down"])
    parser.add_argument("lab", nargs="*", help=" or ".join(LABS))
    chosen = parser.parse_args()
    if strange := [name for name in chosen.lab if name not in LABS]:
        parser.error(f"there is no lab {strange[0]!r}; there are {', '.join(LABS)}")
    cluster = Cluster()
    try:
        return {"up": up, "shell": shell, "down": down}[chosen.verb](cluster, chosen.lab)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def up(cluster: Cluster, names: list[str]) -> int:
    begin = time.monotonic()
    cluster.start()
    for name in names or LABS:
        LABS[name](cluster).start()
    print(f"{len(cluster.node)} nodes up in {time.monotonic() - begin:.1f} s: python -m tests.lab shell slurm")
    return 0


def shell(cluster: Cluster, names: list[str]) -> int:
    """A shell of the lab's user on the login side of one scheduler."""
    lab = LABS[(names or ["slurm"])[0]](cluster)
    if not lab.home.exists():
        raise LabError("no lab is up: python -m tests.lab up")
    return subprocess.call(["bash", "--norc"], **lab.as_user(None, {"PS1": "labuser@login$ "}))


def down(cluster: Cluster, names: list[str]) -> int:
    cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
