"""The cost and gain of compressions, and the time that a container adds to the start of 8 ranks: ratios of one run.

`python -m benchmarks.containers [ROUNDS]`, as root on Debian, because it starts the Slurm lab and Apptainer's lab.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.lab.apptainer import ApptainerLab
from tests.lab.apptainer.images import requirements
from tests.lab.cluster import Cluster
from tests.lab.slurm import SlurmLab
from torusrun.orchestrator.images import runtime
from torusrun.orchestrator.images.command import ContainerExec, inside

ROUNDS = 5
LIMIT_S = 900.0
NODES, RANKS_PER_NODE = 4, 2
RANKS = NODES * RANKS_PER_NODE
COMPRESSIONS = {"gzip": "-comp gzip", "lz4": "-comp lz4", "zstd": "-comp zstd -Xcompression-level 3"}
STARTED = "lz4"  # the compression of the image that the 8 ranks start in
PROGRAMS = {"pass": "pass", "import torch": "import torch"}


class Bench:
    """Times programs of the lab's user."""

    def __init__(self, lab: SlurmLab, apptainer: ApptainerLab, rounds: int) -> None:
        self.lab, self.apptainer, self.rounds = lab, apptainer, rounds
        self.folder = lab.home / "bench"
        self.seconds(["mkdir", str(self.folder)])

    def seconds(self, argv: list[str]) -> float:
        """The wall time of one program of the user; it must succeed."""
        env = {"APPTAINER_TMPDIR": str(self.folder)} if self.folder.exists() else {}
        started_s = time.perf_counter()
        self.lab.run_as_user(argv, timeout_s=LIMIT_S, env=env, check=True)
        return time.perf_counter() - started_s

    def medians(self, cases: Mapping[str, list[str]]) -> dict[str, float]:
        """The median of each case, measured in turns; the first round warms the file cache and is left out."""
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(self.rounds + 1):
            for name, argv in cases.items():
                taken[name].append(self.seconds(argv))
        return {name: statistics.median(times[1:]) for name, times in taken.items()}

    def unpacked(self, image: Path) -> Path:
        """The root file system of an image as a folder."""
        tree = self.folder / "tree"
        listed = self.lab.run_as_user(["apptainer", "sif", "list", str(image)], check=True).stdout
        (start,) = [line.split("|")[3].split("-")[0].strip() for line in listed.splitlines() if "Squashfs" in line]
        words = ["unsquashfs", "-no-progress", "-no-xattrs", "-offset", start, "-dest", str(tree), str(image)]
        self.lab.run_as_user(words, timeout_s=LIMIT_S, check=True)
        return tree

    def packed(self, tree: Path, compression: str) -> tuple[Path, float]:
        """(image, seconds) of packing a folder into an image."""
        image = self.folder / f"{compression}.sif"
        words = ["apptainer", "build", "--mksquashfs-args", COMPRESSIONS[compression], str(image), str(tree)]
        return image, self.seconds(words)

    def contained(self, image: Path, program: str) -> list[str]:
        """The command of a Python program in an image, with the words that start the ranks of a run."""
        found = runtime.required(str(self.apptainer.path / "apptainer"))
        return list(inside(ContainerExec(found, str(image), directory="/"), ["python3", "-c", program], {}, {}).argv)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    apptainer = ApptainerLab()
    apptainer.install()
    with Cluster() as cluster:
        lab = SlurmLab(cluster)
        lab.start()
        lab.add_to_path(apptainer.path)
        print(_head(lab, apptainer, rounds), flush=True)
        original = apptainer.torch_image(lab)  # built once and kept for later benchmarks
        bench = Bench(lab, apptainer, rounds)
        tree = bench.unpacked(original)
        images, build_s = {}, {}
        for name in COMPRESSIONS:
            images[name], build_s[name] = bench.packed(tree, name)
        _compressions(bench, images, build_s)
        _ranks(bench, images[STARTED])


def _head(lab: SlurmLab, apptainer: ApptainerLab, rounds: int) -> str:
    slurm = lab.run_as_user(["srun", "--version"], check=True).stdout.strip()
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {system}, {slurm}, Apptainer {apptainer.version}, "
        f"{' '.join(requirements())}; medians of {rounds} rounds in turns, file cache warm"
    )


def _compressions(bench: Bench, images: Mapping[str, Path], build_s: Mapping[str, float]) -> None:
    sizes = {name: image.stat().st_size / 2**20 for name, image in images.items()}
    columns: dict[str, tuple[Mapping[str, float], Callable[[float], str]]] = {
        "size": (sizes, lambda value: f"{value:.0f} MiB"),
        "build": (build_s, lambda value: f"{value:.1f} s"),
    }
    for title, program in PROGRAMS.items():
        medians = bench.medians({name: bench.contained(image, program) for name, image in images.items()})
        columns[title] = (medians, lambda value: f"{value:.2f} s")
    print("\nThe same root file system (Debian, Python, Open MPI, torch, scikit-learn), packed by `apptainer build`")
    print("from a folder, its copying included; start of `apptainer exec IMAGE python3 -c ...`; x: ratio to gzip.\n")
    print(f"{'':8}" + "".join(f"{title:>12}{'x':>7}" for title in columns))
    for name in images:
        cells = [f"{show(values[name]):>12}{values[name] / values['gzip']:7.2f}" for values, show in columns.values()]
        print(f"{name:8}" + "".join(cells), flush=True)


def _ranks(bench: Bench, image: Path) -> None:
    words = ["srun", f"--nodes={NODES}", f"--ntasks={RANKS}", f"--ntasks-per-node={RANKS_PER_NODE}", "--mem=3G"]
    print(f"\n{RANKS} ranks by srun over {NODES} nodes x {RANKS_PER_NODE}, from srun's start to its end; {STARTED}.\n")
    print(f"{'python -c':14}{'bare':>10}{'in image':>12}{'x':>7}")
    for title, program in PROGRAMS.items():
        bare = [bench.lab.python, "-c", program]
        cases = {"bare": [*words, *bare], "image": [*words, *bench.contained(image, program)]}
        medians = bench.medians(cases)
        both = f"{medians['bare']:>8.2f} s{medians['image']:>10.2f} s"
        print(f"{title:14}{both}{medians['image'] / medians['bare']:7.2f}", flush=True)


if __name__ == "__main__":
    main()
