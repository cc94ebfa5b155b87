"""A process of another user beside a run: it knows the address of the store, and no token.

Usage: stranger.py HOST PORT EVIL READY KEYS. It sends noise to the port and sets the names that it can guess. With
KEYS above 0 it waits until the store lists as many keys, and then overwrites every key again and again. It writes
the file READY when it has begun, and ends with the store.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import TCPStore

NOISE = [b"", b"\0" * 8, b"\xff" * 64, b"GET / HTTP/1.0\r\n\r\n", b"\x00\x00\x00", b"\x09\x3c\x85\x1b" * 100]
GUESSED = ["resume", "here/0", "here/1", "all here", "default_pg/0//cpu//0/1", "0//cpu//0/1"]


def main(host: str, port: int, evil: str, ready: Path, keys: int) -> None:
    for noise in NOISE:
        with suppress(OSError), socket.create_connection((host, port), timeout=300) as connection:
            connection.sendall(noise)
    silent = socket.create_connection((host, port), timeout=300)
    store = TCPStore(host, port, None, False, timedelta(seconds=300), wait_for_workers=False)
    for name in GUESSED:
        store.set(name, evil)
    if keys == 0:
        ready.touch()
        time.sleep(100_000)  # it is killed with the run
    while True:
        listed = [key for key in store.list_keys() if "/" not in key and key not in GUESSED]
        if len(listed) >= keys:
            for key in listed:
                store.set(key, evil)
            ready.touch()
        elif keys > 1:
            ready.touch()
    silent.close()


if __name__ == "__main__":
    with suppress(Exception):  # the store ends with the run
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
