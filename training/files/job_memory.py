"""The memory of a job on its node: that of its control group with the smallest limit, or else of the whole node.

Pages of files without recent use do not count as used: the kernel reclaims them before it kills a process.
Sources: the kernel's documents cgroup-v1/memory.rst and cgroup-v2.rst, and proc(5).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KIB = 1024


@dataclass(frozen=True)
class MemoryFiles:
    """The files of a version of control groups: limit, use, the name of cached files in memory.stat, and kills."""

    limit: str
    used: str
    cached: str
    kills: str


V1 = MemoryFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")
V2 = MemoryFiles("memory.max", "memory.current", "inactive_file", "memory.events")


def memory(root: Path = Path("/")) -> tuple[int, int]:
    """(used, total) in bytes for this process. Raises OSError or ValueError if the node does not report them."""
    used, total = of_node((root / "proc/meminfo").read_text())
    for folder, files in groups(root):
        limit = _number(folder / files.limit)
        if limit is not None and limit < total and (now := _number(folder / files.used)) is not None:
            used, total = max(now - _cached(folder, files), 0), limit
    return used, total


def kills(root: Path = Path("/")) -> int:
    """The processes of this control group that the kernel killed for lack of memory; 0 if it does not count them."""
    with contextlib.suppress(OSError):
        for folder, files in reversed([*groups(root)]):  # version 2 may be mounted beside 1, without memory
            if (folder / files.kills).exists():
                count = re.search(r"^oom_kill (\d+)$", (folder / files.kills).read_text(), re.MULTILINE)
                return int(count[1]) if count else 0
    return 0


def of_node(meminfo: str) -> tuple[int, int]:
    """(used, total) in bytes, from the text of /proc/meminfo. Raises ValueError if it lacks them."""
    sizes = {name: int(size) * KIB for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", meminfo, re.MULTILINE)}
    try:
        return sizes["MemTotal"] - sizes["MemAvailable"], sizes["MemTotal"]
    except KeyError as missing:
        raise ValueError(f"/proc/meminfo has no {missing}") from None


def groups(root: Path) -> Iterator[tuple[Path, MemoryFiles]]:
    """The control groups that may limit the memory of this process, from the outermost inwards."""
    mounts = (root / "proc/self/mountinfo").read_text()
    own = (root / "proc/self/cgroup").read_text()
    for line in own.splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            yield from _nested(root, _mount(mounts, "cgroup2", ""), path, V2)
        elif "memory" in controllers.split(","):
            yield from _nested(root, _mount(mounts, "cgroup", "memory"), path, V1)


def _nested(
    root: Path, mount: tuple[str, str] | None, path: str, files: MemoryFiles
) -> Iterator[tuple[Path, MemoryFiles]]:
    if mount is None:
        return
    base, point = mount
    inside = path[len(base) :] if base != "/" and f"{path}/".startswith(f"{base}/") else path
    folder = root / point.lstrip("/")
    yield folder, files
    for name in filter(None, inside.split("/")):
        folder = folder / name
        yield folder, files


def _mount(mounts: str, kind: str, controller: str) -> tuple[str, str] | None:
    """(the mounted group, the mount point) of the first file system of this kind with this controller."""
    for line in mounts.splitlines():
        words, _, rest = line.partition(" - ")
        place, fields = words.split(), rest.split()
        whole = len(place) > 4 and len(fields) > 2
        if whole and fields[0] == kind and (not controller or controller in fields[2].split(",")):
            return place[3], place[4]
    return None


def _number(path: Path) -> int | None:
    """The number in a file; None for another text, such as 'max', and without the file."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _cached(folder: Path, files: MemoryFiles) -> int:
    try:
        stat = (folder / "memory.stat").read_text()
    except OSError:
        return 0
    cached = re.search(rf"^{files.cached} (\d+)$", stat, re.MULTILINE)
    return int(cached[1]) if cached else 0
