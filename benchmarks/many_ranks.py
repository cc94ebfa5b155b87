"""The start of 128 programs at once on one machine: on the host, with a mount each, from a folder.

`python -m benchmarks.many_ranks [ROUNDS]`, as root on Debian, because it installs Apptainer's lab; the programs run as
an ordinary user. Each is busybox's `true`, so that only the container's own time is measured.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.apptainer import ApptainerLab
from torusrun.orchestrator.images import runtime
from torusrun.orchestrator.images.command import ContainerExec, inside

RANKS, ROUNDS = 128, 5
USER = 65534
LIMIT_S = 600.0


class Bench:
    """Runs programs of an ordinary user with the home `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.chown(folder, USER, USER)

    def run(self, argv: tuple[str, ...] | list[str]) -> None:
        """Run one program; it must succeed."""
        assert self.start(argv).wait(LIMIT_S) == 0, argv

    def start(self, argv: tuple[str, ...] | list[str]) -> subprocess.Popen[bytes]:
        env = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "APPTAINER_SILENT": "1"}
        quiet = subprocess.DEVNULL
        return subprocess.Popen(argv, env=env, cwd=self.folder, user=USER, group=USER, stdout=quiet, stderr=quiet)

    def together_s(self, argv: tuple[str, ...]) -> float:
        """The time from the start of the first of RANKS programs to the end of the last."""
        started_s = time.perf_counter()
        for child in [self.start(argv) for _ in range(RANKS)]:
            assert child.wait(LIMIT_S) == 0, argv
        return time.perf_counter() - started_s


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    apptainer = ApptainerLab()
    apptainer.install()
    found = runtime.required(str(apptainer.path / "apptainer"))
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        image = str(bench.folder / "tiny.sif")
        bench.run([found.command, "build", image, str(apptainer.tiny)])
        mounted = ContainerExec(found, image, directory="/")
        folder = ContainerExec(found, str(apptainer.tiny), directory="/")
        cases = {
            "on the host": (str(apptainer.tiny / "bin" / "busybox"), "true"),
            "a mount each": inside(mounted, ["true"], {}, {}).argv,
            "a folder": inside(folder, ["true"], {}, {}).argv,
        }
        turns = [{case: bench.together_s(argv) for case, argv in cases.items()} for _ in range(rounds + 1)]
    what = f"{RANKS} starts of `true` at once, {os.cpu_count()} cores, {found}"
    print(f"{time.strftime('%Y-%m-%d')}, {what}; medians of {rounds} rounds in turns\n")
    for case in cases:
        median_s = statistics.median(turn[case] for turn in turns[1:])
        print(f"{case:14}{median_s:8.2f} s{1000 * median_s / RANKS:8.1f} ms each")


if __name__ == "__main__":
    main()
