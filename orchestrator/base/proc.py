"""Facts about processes from /proc."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """What a process and those that it started have done so far. Times are seconds since the machine's start.

    Ended children count as far as their parents have noticed their end.
    """

    at_s: float
    cpu_s: float
    read_bytes: int  # of read(2) and of disks; 0 where the kernel refuses it
    written_bytes: int  # of write(2)
    youngest_s: float  # when the youngest that it started began, else 0
    pids: tuple[int, ...]
    stopped: bool  # whether any of them is, as by SIGSTOP


def children(pid: int) -> list[int]:
    """The processes that `pid` started and that still run."""
    pids: list[int] = []
    for thread in _entries(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # that thread has ended
            pids += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return pids


def _entries(folder: str) -> list[str]:
    """The names in a folder of /proc; none if its process has ended, or belongs to somebody else."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """`pid`, the processes that it started, those that they started, and so on, as far as their parents still run."""
    pids = [pid]
    for each in pids:
        pids += children(each)
    return pids


def with_in_environment(text: str) -> list[int]:
    """The other processes whose environment has `text`, as far as this user may read it."""
    pids = []
    for pid in _all():
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            if os.fsencode(text) in Path(f"/proc/{pid}/environ").read_bytes() and pid != os.getpid():
                pids.append(pid)
    return pids


def with_shared_lock(path: Path) -> list[int]:
    """The processes of this user that hold a shared lock of a file (flock), or have inherited it."""
    pids, real = [], os.path.realpath(path)
    for pid, descriptor in ((each, name) for each in _all() for name in _entries(f"/proc/{each}/fd")):
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            place = Path(f"/proc/{pid}")
            if os.readlink(place / "fd" / descriptor) == real and place.stat().st_uid == os.geteuid():
                locks = (place / "fdinfo" / descriptor).read_text()
                pids += [pid] if re.search(r"^lock:.*\bREAD\b", locks, re.MULTILINE) else []
    return [*dict.fromkeys(pids)]


def _all() -> list[int]:
    """All processes that this process can see."""
    return [int(name) for name in _entries("/proc") if name.isdecimal()]


def state_of(pid: int) -> str:
    """The state of a process as the letter of proc(5): T is stopped, D waits for a disk; '' if it has ended."""
    return next(iter(_stat(pid)), "")


def waits_for_disk(pid: int) -> bool:
    """Whether a thread of a process, or of a process that it started, waits for a disk."""
    waits = any(state_of(int(thread)) == "D" for thread in _entries(f"/proc/{pid}/task"))
    return waits or any(map(waits_for_disk, children(pid)))


def work_of(pid: int) -> Work:
    """The work of `pid` and of its descendants."""
    stats = {each: stat for each in descendants(pid) if (stat := _stat(each))}
    cpu_ticks = sum(int(ticks) for stat in stats.values() for ticks in stat[11:15])
    begins = [int(stat[19]) / TICKS_PER_S for each, stat in stats.items() if each != pid]
    moved = [_moved_bytes(each) for each in stats]
    return Work(
        at_s=time.clock_gettime(time.CLOCK_BOOTTIME), cpu_s=cpu_ticks / TICKS_PER_S,
        read_bytes=sum(read for read, _ in moved), written_bytes=sum(written for _, written in moved),
        youngest_s=max(begins, default=0.0), pids=tuple(sorted(stats)),
        stopped=any(stat[0] == "T" for stat in stats.values()),
    )  # fmt: skip


def _moved_bytes(pid: int) -> tuple[int, int]:
    """(read, written) by a process and by the children whose end it has noticed."""
    try:
        lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return int(lines["rchar"]) + int(lines["read_bytes"]), int(lines["wchar"])  # the second also by mapped files
    except (OSError, ValueError, KeyError):
        return 0, 0


def has_terminal(pid: int) -> bool:
    """Whether a process has a controlling terminal."""
    return _stat(pid)[4:5] not in ([], ["0"])


def ancestors() -> list[int]:
    """The processes above this process in its session, from its parent to the session's first process."""
    above, first = [os.getpid()], os.getsid(0)
    while above[-1] != first and (parent := parent_of(above[-1])) and parent != 1:
        above.append(parent)
    return above[1:]


def parent_of(pid: int) -> int | None:
    """The process that started `pid` or adopted it, 0 if it is not visible from here; None if `pid` has ended."""
    status = _stat(pid)
    return int(status[1]) if status else None


def _stat(pid: int) -> list[str]:
    """The fields after the name in a process's line of proc(5): state, parent and more; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
