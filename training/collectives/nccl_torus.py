"""The torus all-reduce over NCCL: its own reduce-scatter, all-reduce and all-gather, each phase on its own stream.

The last level's algorithm, ring or tree, is left to NCCL, which chooses by size. Sources: as in torus.py.

Each phase has a CUDA stream, and the host never waits. A chunk's step starts after the chunk's step before it (by an
event) and after the chunk before it in the phase (by the stream). The calling thread launches everything, chunk after
chunk, in the same order on all ranks: NCCL needs that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.chunks import chunk_weights, split
from torusrun.training.collectives.interface import Call, DownAndUp, Step, Way, wire_bytes, wire_dtype


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


# torch 2.13 renamed both and warns about the old names.
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class NcclTorus(DownAndUp):
    """As `Torus`, over NCCL. `wire_bytes` follows the formula of `interface.wire_bytes`.

    In 16 bits NCCL divides by the ranks of a level before it sums in that level, so nothing overflows. But elements
    below d times the dtype's smallest number lose bits in a level of d ranks.
    """

    def _ways(self, vector: Tensor) -> list[Way]:
        """A length that is not `padded`, or another dtype on the wire, needs a copy each way."""
        staged = Staged(vector.detach(), self.padded(vector.numel()), wire_dtype(vector, self._wire))
        for level, sent in enumerate(wire_bytes(staged.buffer.nbytes, self._dims)):
            self._sent_bytes[level] += sent
        ways, begin = list[Way](), 0
        weights = chunk_weights(staged.buffer.nbytes) if len(self._dims) > 1 else [1]
        for chunk in split(staged.buffer, weights, self.ranks):
            span = slice(begin, begin + chunk.numel())
            ways.append(staged.around(span, self._reduce(chunk, 0), self._last_phase))
            begin = span.stop
        return ways

    def _reduce(self, segment: Tensor, level: int) -> Iterator[tuple[int, Step]]:
        """The steps to the mean of a segment over the groups from `level` on."""
        group = self._down[level]
        if level == len(self._dims) - 1:
            yield level, Call(partial(self._sum, segment, group))
            return
        shard = segment.view(self._dims[level], -1)[self._mine[level]]
        if group:
            scatter = partial(_reduce_scatter, shard, segment, op=_operation(segment), group=group)
            yield level, Call(scatter)
        yield from self._reduce(shard, level + 1)
        if up := self._up[level]:
            yield self._last_phase - level, Call(partial(_all_gather, segment, shard, group=up))

    def _sum(self, segment: Tensor, group: dist.ProcessGroup | None) -> None:
        """Sum in the last level, where each rank has its own part of the future mean."""
        if group:
            dist.all_reduce(segment, op=_operation(segment), group=group)
        if segment.dtype == torch.float32:
            segment /= self.ranks


class Staged:
    """A vector as it travels: `buffer` is the vector itself, or a copy of another length or dtype."""

    def __init__(self, vector: Tensor, length: int, dtype: torch.dtype) -> None:
        self._vector = vector
        self._same = length == vector.numel() and dtype == vector.dtype
        self.buffer = vector if self._same else vector.new_zeros(length, dtype=dtype)

    def around(self, span: slice, steps: Iterator[tuple[int, Step]], last: int) -> list[tuple[int, Step]]:
        """The `steps`, between a copy of a span of the vector in the first phase and the copy back in the last."""
        if self._same:
            return list(steps)
        return [(0, Call(partial(self._load, span))), *steps, (last, Call(partial(self._store, span)))]

    def _load(self, span: slice) -> None:
        source = self._vector[span]
        self.buffer[span][: source.numel()].copy_(source)

    def _store(self, span: slice) -> None:
        target = self._vector[span]
        target.copy_(self.buffer[span][: target.numel()])
        if self.buffer.is_cuda:  # the allocator must not reuse the buffer before this has run
            self.buffer.record_stream(torch.cuda.current_stream())


def _operation(segment: Tensor) -> dist.ReduceOp.RedOpType:
    return dist.ReduceOp.SUM if segment.dtype == torch.float32 else dist.ReduceOp.AVG
