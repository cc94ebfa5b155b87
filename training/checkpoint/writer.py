"""A process beside the training that writes its checkpoints, one at a time. No torch.

It is forked before torch is imported: then it has no threads, no device and little memory. A thread would hold the
interpreter's lock while it works. An order travels over a socket, the state in shared memory, whose descriptor travels
with the order. So the process needs nothing of the training: it finishes an order even if the training was killed.

It inherits the lock of its attempt (the open file `alive`). So the next attempt waits for it.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
import socket
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any

from training.checkpoint.store import Order, write

LARGEST_BYTES = 1 << 17  # of a message; the kernel's default limit is 208 KiB
ALONE_S = 60.0  # how long an order may take after the end of the training; the next attempt waits longer
# To end a job, some launchers and schedulers signal all of its processes. This one ends by itself.
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Written:
    """How an order ended: with the state's checksum after `writing_s`, or with an error."""

    order: Order
    sha256: str
    writing_s: float
    error: OSError | None


class Writer:
    """Has checkpoints written: by a process, or within the call if there is none or if it has died."""

    def __init__(self, orders: socket.socket | None = None) -> None:
        self._orders = orders
        self._order: Order | None = None
        self._written: Written | None = None

    @property
    def busy(self) -> bool:
        """Whether an order was begun of which `finished` has not yet returned the end."""
        return self._order is not None

    def begin(self, order: Order, memory: int) -> None:
        """Begin an order; its state must stay as it is in the open file `memory` until the end."""
        self._order = order
        if not self._sent(json.dumps(asdict(order)).encode(), memory):
            self._written = _written(order, memory)

    def _sent(self, message: bytes, memory: int) -> bool:
        """Whether the process has got the order; it gets no further ones if it has died."""
        if self._orders is None or len(message) > LARGEST_BYTES:
            return False
        try:
            socket.send_fds(self._orders, [message], [memory])
        except OSError:
            self._orders = None
            return False
        return True

    def finished(self, wait: bool) -> Written | None:
        """The end of the order in flight; None if there is none, or if it still takes time and `wait` is false."""
        if self._order is None:
            return None
        if self._orders and self._written is None:
            try:
                answer = self._orders.recv(LARGEST_BYTES, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                answer = b""
            self._written = self._parsed(answer, self._order)
        found, self._order, self._written = self._written, None, None
        return found

    def _parsed(self, answer: bytes, order: Order) -> Written:
        if not answer:
            self._orders = None
            return Written(order, "", 0.0, OSError(errno.EPIPE, "the process that wrote it has died"))
        values = json.loads(answer)
        error = OSError(values["errno"], values["error"]) if values["error"] else None
        return Written(order, values["sha256"], values["writing_s"], error)


def start() -> Writer:
    """Fork the process. To be called before anything starts threads."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        there.close()
        return Writer(here)
    try:
        here.close()
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        os.nice(10)  # the training comes first if it uses all cores
        os.setpgid(0, 0)  # some launchers kill the process group of a rank
        _serve(there)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve(orders: socket.socket) -> None:
    """Write what is ordered until the training has ended."""
    alone = _Alone(os.getppid())
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, LARGEST_BYTES, 1)
        if not message:
            return
        values = json.loads(message)
        done = _written(Order(**values), descriptors[0], alone)
        os.close(descriptors[0])
        try:
            orders.send(json.dumps(_answer(done)).encode())
        except OSError:  # the training has ended
            return


def _answer(done: Written) -> dict[str, Any]:
    code, words = (done.error.errno, done.error.strerror or str(done.error)) if done.error else (0, "")
    return {"sha256": done.sha256, "writing_s": done.writing_s, "errno": code, "error": words}


class _Alone:
    """Raises TimeoutError in a process that works ALONE_S longer than its parent."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._until_s: float | None = None

    def __call__(self) -> None:
        if os.getppid() == self._parent:
            return
        self._until_s = self._until_s or time.monotonic() + ALONE_S
        if time.monotonic() > self._until_s:
            raise TimeoutError(errno.ETIMEDOUT, f"the training ended {ALONE_S:g} s ago, and the disk is too slow")


def _written(order: Order, memory: int, alone: _Alone | None = None) -> Written:
    began_s, sha256, error = time.perf_counter(), "", None
    try:
        mapped = mmap.mmap(memory, 0, prot=mmap.PROT_READ)  # unmapped with the last view of it
        sha256 = write(order, memoryview(mapped), alone or (lambda: None))
    except OSError as failed:
        error = failed.with_traceback(None)  # its frames hold views
    except Exception as failed:  # a defect must not end the process without an answer
        traceback.print_exc()
        error = OSError(errno.EIO, f"{type(failed).__name__}: {failed}")
    return Written(order, sha256, time.perf_counter() - began_s, error)
