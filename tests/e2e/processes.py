"""The processes of a run on a host, read from /proc, and their roles."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

SUPERVISOR = "torusrun.orchestrator.job.supervise"


@dataclass(frozen=True)
class Process:
    """A process; its number and that of its `parent` are those of its own host."""

    host: str
    pid: int
    parent: int
    arguments: tuple[str, ...]

    @property
    def module(self) -> str:
        """The Python module that it runs, '' if torusrun started none in it."""
        words = self.arguments
        if len(words) > 3 and words[1] == "-u" and words[2].endswith("/entry/torusrun"):
            return words[3]
        return words[words.index("-m") + 1] if "-m" in words[:-1] else ""

    def __str__(self) -> str:
        return f"{self.host}:{self.pid} {self.module or ' '.join(self.arguments)[:60]}"


def of_run(run: Path, hosts: Mapping[str, str]) -> list[Process]:
    """The processes that name the run's folder in their arguments or their environment.

    `hosts` maps each namespace of processes (the link /proc/PID/ns/pid) to the name of its host.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := _process(entry, str(run).encode(), hosts)):
            found.append(process)
    return found


def namespace(pid: int | str = "self") -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def _process(entry: Path, run: bytes, hosts: Mapping[str, str]) -> Process | None:
    try:
        command = (entry / "cmdline").read_bytes()
        if run not in command and run not in (entry / "environ").read_bytes():
            return None
        host = hosts.get(namespace(entry.name))
        parent = Path("/proc") / _field(entry, "PPid")[0]
        if host is None or not command:
            return None
        arguments = tuple(word.decode(errors="replace") for word in command.rstrip(b"\0").split(b"\0"))
        return Process(host, int(_field(entry, "NSpid")[-1]), int(_field(parent, "NSpid")[-1]), arguments)
    except OSError:  # it ended meanwhile
        return None


def _field(entry: Path, name: str) -> list[str]:
    """A line of /proc/PID/status; the parent of a process without one is 0."""
    if entry.name == "0":
        return ["0"]
    for line in (entry / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split()[1:]
    raise ProcessLookupError(entry)


def told(text: str) -> list[Process]:
    """The processes in the output of this file on another host."""
    rows = json.loads(text or "[]")
    return [Process(row["host"], row["pid"], row["parent"], tuple(row["arguments"])) for row in rows]


if __name__ == "__main__":  # arguments RUN HOST, on that host
    there = of_run(Path(sys.argv[1]), {namespace(): sys.argv[2]})
    print(json.dumps([asdict(process) for process in there if process.pid != os.getpid()]))
