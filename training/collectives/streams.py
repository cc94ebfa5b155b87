"""Chunks on their way through phases on a GPU: a CUDA stream for each phase, and no host ever waits.

A chunk's step starts when its step before has ended (an event) and the phase's chunk before has (the stream). All is
launched by the calling thread, chunk after chunk, in the same order on all ranks: NCCL needs that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from .phases import Way


class StreamJob:
    """Chunks that are done when `stream` has come so far."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream, self._end = stream, stream.record_event()

    def wait(self) -> None:
        """Make the current stream wait; the host does not. A lost rank is found by NCCL's own watchdog."""
        torch.cuda.current_stream().wait_event(self._end)

    def future(self, vector: Tensor) -> torch.futures.Future[Tensor]:
        """A future of `vector`: who waits for it lets its own current stream wait."""
        future: torch.futures.Future[Tensor] = torch.futures.Future(devices=[vector.device])
        with torch.cuda.stream(self._stream):
            future.set_result(vector)
        return future


class Streams:
    """`phases` phases of the current device, in streams of high priority: others wait for communication.

    `groups` are watched by NCCL itself.
    """

    def __init__(self, phases: int, groups: Sequence[dist.ProcessGroup]) -> None:
        high: partial[torch.cuda.Stream] = partial(torch.cuda.Stream, priority=-1)
        self._streams = [high() for _ in range(phases)]

    def start(self, ways: Sequence[Way]) -> StreamJob:
        """Launch all; what the current stream does now comes before."""
        ready = torch.cuda.current_stream().record_event()
        last = torch.cuda.current_stream()
        for way in ways:
            before = ready
            for _, step in way:
                step.post()
            for phase, step in way:
                last = self._streams[phase]
                last.wait_event(before)
                with torch.no_grad(), torch.cuda.stream(last):
                    step.run()
                before = last.record_event()
        return StreamJob(last)

    def run(self, way: Way) -> None:
        """`start`, and let the current stream wait."""
        self.start([way]).wait()
