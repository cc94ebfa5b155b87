"""A separate process that writes the checkpoints of a training, one at a time. It does not import torch.

Our own training forks it before torch is imported: then it has no threads, no device and little memory. A script has
imported torch already, so its writer is a new Python (`start_anew`). A thread would hold the interpreter's lock while
it works. An order travels over a socket, the state in shared memory, whose descriptor travels with the order. So the
process needs nothing of the training: it finishes an order even if the training was killed.

It holds the lock of its attempt (the open file `alive`). So the next attempt waits for it.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torusrun.training.checkpoint.store import Order, write

LARGEST_BYTES = 1 << 17  # of a message; the kernel's default limit is 208 KiB
ALONE_S = 60.0  # how long an order may take after the end of the training; the next attempt waits longer
BEGIN_S = END_S = 60.0  # for the start and the end of a Python
# The package comes last, so that nothing beside it hides a module of the standard library.
PROGRAM = """\
import sys
sys.path.append(sys.argv[1])
from torusrun.training.checkpoint.writer import serve
serve(int(sys.argv[2]), int(sys.argv[3]))
"""
# To end a job, some launchers and schedulers signal all of its processes. The writer ends by itself.
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Written:
    """How an order ended: with the (bytes, SHA-256) of each file after `writing_s`, or with an error."""

    order: Order
    files: dict[str, tuple[int, str]]
    writing_s: float
    error: OSError | None


class Writer:
    """Has checkpoints written: by a process, or within the call if it has no process or if that has died."""

    def __init__(self, orders: socket.socket | None = None, process: subprocess.Popen[bytes] | None = None) -> None:
        self._orders, self._process = orders, process
        self._order: Order | None = None
        self._written: Written | None = None

    def begin(self, order: Order, memory: int) -> None:
        """Begin an order; its state in the open file `memory` must not change until the end."""
        self._order = order
        if not self._sent(json.dumps(asdict(order)).encode(), memory):
            self._written = _written(order, memory)

    def _sent(self, message: bytes, memory: int) -> bool:
        """Whether the process has got the order. A process that has died gets no further orders."""
        if self._orders is None or len(message) > LARGEST_BYTES:
            return False
        try:
            socket.send_fds(self._orders, [message], [memory])
        except OSError:
            self._orders = None
            return False
        return True

    def finished(self, wait: bool) -> Written | None:
        """The end of the order in flight; None without an order, or if it still takes time and `wait` is false."""
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
        written, self._order, self._written = self._written, None, None
        return written

    def close(self) -> None:
        """End the process; no order may be in flight. A writer that was forked ends with the training."""
        if self._orders and self._process:
            self._orders.shutdown(socket.SHUT_RDWR)  # `close` is not enough: workers that load data may have it open
            self._orders.close()
            self._orders = None
            self._process.wait(END_S)

    def _parsed(self, answer: bytes, order: Order) -> Written:
        if not answer:
            self._orders = None
            return Written(order, {}, 0.0, OSError(errno.EPIPE, "the process that wrote it has died"))
        values = json.loads(answer)
        error = OSError(values["errno"], values["error"]) if values["error"] else None
        return Written(order, values["files"], values["writing_s"], error)


def start() -> Writer:
    """Fork the process. To be called before anything starts threads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    training = os.getpid()
    if os.fork():
        theirs.close()
        return Writer(ours)
    try:
        ours.close()
        _serve(theirs, training)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def start_anew(kept: Sequence[int] = ()) -> Writer:
    """Start the process as a new Python, which keeps the open files `kept`, such as locks. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    entry = Path(__file__).resolve().parents[1] / "entry"  # it has the package `torusrun`
    arguments = [str(entry), str(theirs.fileno()), str(os.getpid())]
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, *arguments]
    # A process with the heartbeat's name in its environment is ended with the attempt: the writer ends by itself.
    environment = {name: value for name, value in os.environ.items() if name != "TORUSRUN_HEARTBEAT"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno(), *kept], env=environment)
    theirs.close()
    ours.settimeout(BEGIN_S)
    if not ours.recv(LARGEST_BYTES):
        raise OSError(errno.ECHILD, f"{sys.executable}: the process that writes checkpoints has not begun")
    ours.settimeout(None)
    return Writer(ours, process)


def serve(orders: int, training: int) -> None:
    """The whole work of a process that `start_anew` started: `orders` is the descriptor of its socket."""
    _serve(socket.socket(fileno=orders), training, begun=b"begun")


def _serve(orders: socket.socket, training: int, begun: bytes = b"") -> None:
    """Write what is ordered until the process `training` has ended. It first sends `begun`, unless that is empty."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.setpgid(0, 0)  # some launchers kill the process group of a rank
    os.nice(10)  # the training comes first if it uses all cores
    if begun:
        orders.send(begun)
    alone = _Alone(training)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(orders, LARGEST_BYTES, 1)
        except ConnectionResetError:  # it has ended without the last answer
            return
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
    return {"files": done.files, "writing_s": done.writing_s, "errno": code, "error": words}


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
    began_s, files, error = time.perf_counter(), {}, None
    try:
        mapped = mmap.mmap(memory, 0, prot=mmap.PROT_READ)  # unmapped with the last view of it
        files = write(order, memoryview(mapped), alone or (lambda: None))
    except OSError as failed:
        error = failed.with_traceback(None)  # its frames hold views
    except Exception as failed:  # a defect must not end the process without an answer
        traceback.print_exc()
        error = OSError(errno.EIO, f"{type(failed).__name__}: {failed}")
    return Written(order, files, time.perf_counter() - began_s, error)
