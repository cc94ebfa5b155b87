"""Chunks pass through phases: each phase takes one chunk at a time, in order, and phases run at the same time.

Each thread carries one chunk through all phases; it waits without holding the interpreter. A chunk does not belong to a
thread. So the calling thread carries a short vector itself, and no other thread has to wake up.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.interface import Step, Way, close_connections
from torusrun.training.reporting.exits import PeerLost

LAST_WAIT_S = 5.0


class Job:
    """Some chunks, of which `left` are not through yet; `done` is complete when all are. Only `Pipeline` makes it."""

    def __init__(self, chunks: int) -> None:
        self.left = chunks
        self.done: Future[None] = Future()

    def wait(self) -> None:
        """Wait until all chunks have passed all phases. Raises PeerLost, or the error of any chunk."""
        error = self.done.exception()
        if isinstance(error, PeerLost):
            raise PeerLost(str(error)) from error.__cause__
        if error:
            raise RuntimeError(f"an all-reduce failed: {error}") from error

    def future(self, vector: Tensor) -> torch.futures.Future[Tensor]:
        """A future of `vector`, completed by the thread that ends the job."""
        future: torch.futures.Future[Tensor] = torch.futures.Future()

        def complete(done: Future[None]) -> None:
            error = done.exception()
            if isinstance(error, Exception):
                future.set_exception(error)  # type: ignore[arg-type]  # torch types it as a result
            else:
                future.set_result(vector)

        self.done.add_done_callback(complete)
        return future


class Pipeline:
    """`phases` phases that communicate over `groups`, and threads for one chunk more than phases.

    After an error in one chunk all current and later chunks fail. The connections are then closed, so nothing waits
    forever, here or on another rank. The threads end with the pipeline, or with the program.
    """

    def __init__(self, phases: int, groups: Sequence[dist.ProcessGroup]) -> None:
        self._carriers, self._groups = phases + 1, groups
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._moved = [threading.Condition(self._lock) for _ in range(phases)]
        self._turns, self._tickets = [0] * phases, [0] * phases
        self._jobs: list[Job] = []
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None

    def start(self, ways: Sequence[Way]) -> Job:
        job, carried = self._enter(ways)
        if not self._threads:
            self._start_threads()
        for act in carried:
            self._queue.put(act)
        return job

    def run(self, ways: Sequence[Way]) -> None:
        """Carry some chunks and wait; this thread carries a single chunk, after the chunks that were started before."""
        if len(ways) > 1:
            return self.start(ways).wait()
        job, (act,) = self._enter(ways)
        act()
        job.wait()

    def close(self) -> None:
        """End the threads; current chunks fail. A thread that wakes while the interpreter ends would abort it."""
        if self._jobs:
            self._fail(RuntimeError("the program ended before it"))
        _dismiss(self._queue, self._carriers)
        for thread in self._threads:
            thread.join(LAST_WAIT_S)

    def _start_threads(self) -> None:
        for _ in range(self._carriers):
            thread = threading.Thread(target=_carry_on, args=(self._queue,), name="all-reduce", daemon=True)
            self._threads.append(thread)
            thread.start()
        _at_work.add(self)
        weakref.finalize(self, _dismiss, self._queue, self._carriers).atexit = False

    def _enter(self, ways: Sequence[Way]) -> tuple[Job, list[Callable[[], None]]]:
        """Give every chunk its turn in every phase of its way."""
        job = Job(len(ways))
        with self._lock:
            if self._error:
                job.done.set_exception(self._error)
            else:
                self._jobs.append(job)
            return job, [self._turned(job, way) for way in ways]

    def _turned(self, job: Job, way: Way) -> Callable[[], None]:
        turns = []
        for phase, step in way:
            turns.append((phase, self._tickets[phase], step))
            self._tickets[phase] += 1
        return lambda: self._carry(job, turns)

    def _carry(self, job: Job, turns: Sequence[tuple[int, int, Step]]) -> None:
        try:
            with torch.no_grad():
                for _, _, step in turns:
                    step.post()
                for phase, turn, step in turns:
                    if not self._come_to(turn, phase):
                        return
                    step.run()
                    self._pass_on(phase)
        except BaseException as error:
            self._fail(error)
        else:
            self._end_chunk(job)

    def _come_to(self, turn: int, phase: int) -> bool:
        """Wait for a turn; False if an error prevents it."""
        with self._lock:
            while self._turns[phase] != turn and not self._error:
                self._moved[phase].wait()
            return not self._error

    def _pass_on(self, phase: int) -> None:
        with self._lock:
            self._turns[phase] += 1
            self._moved[phase].notify_all()

    def _end_chunk(self, job: Job) -> None:
        with self._lock:
            job.left -= 1
            if job.left or self._error:
                return
            self._jobs.remove(job)
        job.done.set_result(None)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._error:
                return
            self._error = error
            failed, self._jobs = self._jobs, []
            for condition in self._moved:
                condition.notify_all()
        for job in failed:
            job.done.set_exception(error)
        for group in self._groups:
            close_connections(group)


def _carry_on(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while act := queue.get():
        act()
        del act  # it would keep its pipeline, and so the groups' connections, while this thread waits


def _dismiss(queue: SimpleQueue[Callable[[], None] | None], threads: int) -> None:
    for _ in range(threads):
        queue.put(None)


_at_work: weakref.WeakSet[Pipeline] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pipeline in list(_at_work):
        pipeline.close()
