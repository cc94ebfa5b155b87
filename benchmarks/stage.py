"""How long `stage:` takes to 8 hosts with links of 1 Gbit/s from a shared disk of 100 MB/s, and other ways beside it.

`python -m benchmarks.stage [ROUNDS]`, as root on Debian with control groups v1, because it starts the Slurm lab.

chain   the bound of `stage:`: size / the slower of disk and link + (hosts - 1) x one block / link
tree    the bound of a binomial tree, whose root sends all log2(hosts) times: log2(hosts) x size / link
alone   the bound of hosts that read the shared disk for themselves: hosts x size / disk

The disk is a file system of its own whose reads are throttled together (blkio); the hosts' own disks are in memory. As
all hosts are on one machine, hosts that read for themselves read past its page cache (O_DIRECT), and the cache has no
part of the file when a copy begins. Links have their rate both ways (tbf). With a fifth of both rates, and a
smaller file, the processors of a small machine are no limit: 8 hosts receive, check, send and write 8 times the rate.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.lab_places import Slurm
from tests.lab.cluster import Cluster, network
from tests.lab.cluster.processes import LabError, run
from tests.lab.cluster.settings import INTERFACE, Settings
from tests.lab.slurm import SlurmLab

ROUNDS = 3
HOSTS = 8
LINK_BYTES_PER_S, DISK_BYTES_PER_S, SIZE_BYTES = 125e6, 100e6, 500_000_000
BLOCK_BYTES = 1 << 20  # orchestrator/job/staging/stream.py
STAGE = "stage:"
SLOWER = {1: SIZE_BYTES, 5: SIZE_BYTES // 10}  # how many times slower disk and links are, and the size of the file
FOLDER = Path("/srv/torusrun-stage-disk")  # not below /tmp, which each node has for itself
GROUP = Path("/sys/fs/cgroup/blkio/torusrun-stage-disk")
RUN = """name: stage
site: site.yaml
nodes: {hosts}
ranks_per_node: 1
code: none
stage: [{file}]
command: [sh, -c, 'cmp {file} "$TORUSRUN_STAGED/file.bin"']
"""
ON_ONE = ["sbatch", "--wait", "--nodes={hosts}", "--ntasks-per-node=1", "--mem=3G", "--time=5", "--output={out}"]


class Disk:
    """The shared disk."""

    def __init__(self) -> None:
        self.image, self.root = FOLDER / "image", FOLDER / "root"
        self.device = ""

    def __enter__(self) -> Disk:
        self.root.mkdir(parents=True)
        with self.image.open("wb") as image:
            image.truncate(2 * SIZE_BYTES)
        run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", str(self.image)])
        self.device = run(["losetup", "--find", "--show", str(self.image)]).stdout.strip()
        run(["mount", self.device, str(self.root)])
        GROUP.mkdir(exist_ok=True)
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))  # and all that it starts
        return self

    def __exit__(self, *how: object) -> None:
        (GROUP.parent / "cgroup.procs").write_text(str(os.getpid()))
        run(["umount", str(self.root)])
        run(["losetup", "--detach", self.device])
        run(["rm", "-r", str(FOLDER)])
        GROUP.rmdir()

    @contextmanager
    def throttled(self, bytes_per_s: float) -> Iterator[None]:
        number = Path("/sys/block", Path(self.device).name, "dev").read_text().strip()
        throttle = GROUP / "blkio.throttle.read_bps_device"
        throttle.write_text(f"{number} {bytes_per_s:.0f}")
        yield
        throttle.write_text(f"{number} 0")

    def file(self, size_bytes: int) -> Path:
        path = self.root / "file.bin"
        with path.open("wb") as file:
            for _ in range(size_bytes // 1_000_000):
                file.write(os.urandom(1_000_000))
            os.fsync(file.fileno())
        path.chmod(0o644)
        return path

    def forget(self, path: Path) -> None:
        """Drop the page cache of a file."""
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Bench:
    """Times ways to bring one file to all hosts, by the lab's user."""

    def __init__(self, place: Slurm, file: Path) -> None:
        self.place, self.file = place, file

    def staged_s(self) -> float:
        """By `stage:`, until the last host has its copy; the ranks compare it."""
        clear = "rm -rf /tmp/torusrun-*"
        for node in self.place.lab.nodes:
            self.place.lab.exec_on(node, ["sh", "-c", clear])
        self.place.put("stage.yaml", RUN.format(hosts=HOSTS, file=self.file))
        run = self.place.succeeds("submit", "stage.yaml", "--wait").stdout.split()[0]
        folder = Path(self.place.view(run)["folder"])
        done = json.loads((folder / "attempts/1/ranks/staged.json").read_text())["done"]
        assert len(done) == HOSTS and all(each["bytes"] > self.file.stat().st_size for each in done.values())
        return max(float(each["seconds"]) for each in done.values())

    def job_s(self, script: str) -> float:
        """Between the first and the last time, in seconds, that a batch script on the first host prints."""
        out = self.place.folder / "times"
        self.place.put("job.sh", f"#!/bin/bash\nset -e\n{script}\n")
        words = [word.format(hosts=HOSTS, out=out) for word in ON_ONE]
        self.place.lab.run_as_user([*words, "job.sh"], timeout_s=240, cwd=self.place.folder, check=True)
        times = [float(line) for line in out.read_text().split()]
        return max(times) - min(times)

    def broadcast_s(self) -> float:
        return self.job_s(f"date +%s.%N; sbcast --force {self.file} /tmp/copy.bin; date +%s.%N; srun rm /tmp/copy.bin")

    def alone_s(self) -> float:
        read = f"dd if={self.file} of=/tmp/copy.bin iflag=direct bs=1M status=none"
        return self.job_s(f"srun sh -c 'date +%s.%N; {read}; date +%s.%N; rm /tmp/copy.bin'")


@contextmanager
def shaped(nodes: list[str], bits_per_s: float) -> Iterator[None]:
    with ExitStack() as links:
        for node in nodes:
            links.enter_context(network.limited(node, bits_per_s))
            links.enter_context(network.slow(INTERFACE, bits_per_s, network.namespace(node)))
        yield


def bounds_s(size: float, link: float, disk: float) -> dict[str, float]:
    return {
        "chain": size / min(link, disk) + (HOSTS - 1) * BLOCK_BYTES / link,
        "tree": math.log2(HOSTS) * size / link,
        "alone": HOSTS * size / disk,
    }


def compared(disk: Disk, place: Slurm, slower: int, rounds: int) -> None:
    link, rate, size = LINK_BYTES_PER_S / slower, DISK_BYTES_PER_S / slower, SLOWER[slower]
    bench = Bench(place, disk.file(size))
    bound = bounds_s(size, link, rate)
    print(f"\n{size / 1e6:.0f} MB, links of {8 * link / 1e6:.0f} Mbit/s, a disk of {rate / 1e6:.0f} MB/s")
    for name, bound_s in bound.items():
        print(f"{'bound: ' + name:26}{bound_s:7.2f} s{bound_s / bound['chain']:7.2f} x the chain's bound")
    ways = {STAGE: bench.staged_s, "sbcast": bench.broadcast_s, "each for itself": bench.alone_s}
    with shaped(place.lab.nodes, 8 * link), disk.throttled(rate):
        for name, measured_s in ways.items():
            taken_s = []
            try:
                for _ in range(rounds if name == STAGE else 1):
                    disk.forget(bench.file)
                    taken_s.append(measured_s())
            except LabError as error:
                print(f"{name:26} failed: {str(error).splitlines()[0]}")
                continue
            middle_s = statistics.median(taken_s)
            all_s = ", ".join(f"{each:.2f}" for each in taken_s)
            print(f"{name:26}{middle_s:7.2f} s{middle_s / bound['chain']:7.2f} x  ({all_s})", flush=True)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    nodes = tuple(f"node{number + 1}" for number in range(HOSTS))
    with Disk() as disk, Cluster(Settings(nodes=nodes)) as cluster:
        lab = SlurmLab(cluster)
        lab.start()
        slurm = lab.run_as_user(["srun", "--version"], check=True).stdout.strip()
        system = f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {platform.release()}"
        machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"
        print(f"{time.strftime('%F')}, {machine}, {system}, {slurm}, Python {platform.python_version()}")
        print(f"{HOSTS} hosts, medians of {rounds} rounds of {STAGE} and one of the others")
        for slower in SLOWER:
            compared(disk, Slurm(lab), slower, rounds)


if __name__ == "__main__":
    main()
