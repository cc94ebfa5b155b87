"""Chunks pass through phases on a GPU: each phase has a CUDA stream, and the host never waits.

A chunk's step starts after the chunk's step before it (by an event) and after the chunk before it in the phase (by the
stream). The calling thread launches everything, chunk after chunk, in the same order on all ranks: NCCL needs that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.phases import Way


class StreamJob:
    """Chunks that are done when `stream` has passed their last step."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream, self._end = stream, stream.record_event()

    def wait(self) -> None:
        """Make the current stream wait, but not the host. NCCL's own watchdog finds a lost rank."""
        torch.cuda.current_stream().wait_event(self._end)

    def future(self, vector: Tensor) -> torch.futures.Future[Tensor]:
        """A future of `vector`; a caller that waits for it makes its own current stream wait."""
        future: torch.futures.Future[Tensor] = torch.futures.Future(devices=[vector.device])
        with torch.cuda.stream(self._stream):
            future.set_result(vector)
        return future


class Streams:
    """`phases` phases of the current device, in streams of high priority, because others wait for communication.

    NCCL itself watches the `groups`.
    """

    def __init__(self, phases: int, groups: Sequence[dist.ProcessGroup]) -> None:
        high: partial[torch.cuda.Stream] = partial(torch.cuda.Stream, priority=-1)
        self._streams = [high() for _ in range(phases)]

    def start(self, ways: Sequence[Way]) -> StreamJob:
        """Launch all chunks, after the work that is in the current stream now."""
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

    def run(self, ways: Sequence[Way]) -> None:
        """`start`, and make the current stream wait."""
        self.start(ways).wait()
