"""The program of every rank of doctor's job: `hello.py FOLDER`. It needs only Python.

It reads the word that the login node wrote into FOLDER, writes facts about its node, and waits for an answer. So the
login node learns that both see each other's files, and how far apart their clocks are. Then all ranks meet.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

ANSWER_S = 40.0
MEET_S = 60.0
LOOK_S = 0.05


def main(folder: Path) -> int:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    word = (folder / "word").read_text(encoding="utf-8")
    facts = {"rank": rank, "host": socket.gethostname(), "word": word, **_node()}
    _write(folder / f"rank-{rank}.json", {**facts, "time_s": time.time()})
    answer = _answer(folder / f"answer-{rank}")
    seen_s = time.time()
    met = _meet(rank, world)
    _write(folder / f"done-{rank}.json", {**facts, "answer": answer, "seen_s": seen_s, "met": met})
    return 0 if not met else 1


def _node() -> dict[str, object]:
    """Facts about this node, to compare with the site's file."""
    scratch = os.environ.get("TORUSRUN_SCRATCH") or "/tmp"
    free = os.statvfs(scratch)
    return {
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)),
        "gpus": len([name for name in _names("/dev") if name.startswith("nvidia") and name[6:].isdecimal()]),
        "interfaces": _names("/sys/class/net"),
        "adapters": _names("/sys/class/infiniband"),
        "scratch": scratch,
        "scratch_free_bytes": free.f_bavail * free.f_frsize,
    }


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _write(path: Path, value: object) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)


def _answer(path: Path) -> str:
    """The login node's answer; '' if none came in time."""
    end_s = time.monotonic() + ANSWER_S
    while time.monotonic() < end_s:
        os.listdir(path.parent)  # makes NFS refresh the folder
        if path.exists():
            return path.read_text(encoding="utf-8")
        time.sleep(LOOK_S)
    return ""


def _meet(rank: int, world: int) -> str:
    """Connect every rank to rank 0; why that failed, or '' if it worked."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    try:
        return _host(address, world) if rank == 0 else _join(address)
    except OSError as error:
        return f"{address[0]}:{address[1]}: {error}"


def _host(address: tuple[str, int], world: int) -> str:
    family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
    with socket.create_server(address, family=family, backlog=world) as listening:
        listening.settimeout(MEET_S)
        joined = [listening.accept()[0] for _ in range(world - 1)]
        for connection in joined:
            connection.sendall(b"met")
            connection.close()
    return ""


def _join(address: tuple[str, int]) -> str:
    end_s = time.monotonic() + MEET_S
    while True:
        try:
            with socket.create_connection(address, timeout=MEET_S) as connection:
                return "" if connection.recv(3) == b"met" else "rank 0 did not answer"
        except ConnectionRefusedError:  # rank 0 does not listen yet
            if time.monotonic() > end_s:
                raise
            time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
