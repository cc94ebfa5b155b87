"""Communication that backward does not hide, with every plan of buckets and with torch's own DDP, over shaped links.

`python -m benchmarks.overlap [ROUNDS]` as root. Two nodes with a rank each, gloo. Exposed is the time from the last
gradient of the slowest rank until all ranks have all means. Its floor is the all-reduce of the tensor with the last
gradient. Backward is replayed with sleeps, at the shares of time and bytes of ResNet-50's tensors, or is that of
ResNet-50 itself. If the gradients are scaled down, so are DDP's limits of 1 and 25 MiB.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.replayed import Replayed
from benchmarks.shaped_racks import ShapedRacks
from benchmarks.shaped_ranks import times_s, together
from torusrun.orchestrator.forecast.step import ready_s
from torusrun.orchestrator.forecast.step import resnet50 as tensors
from torusrun.training.collectives.all_reduce import build
from torusrun.training.models import residual
from torusrun.training.sync import plans
from torusrun.training.sync.gradients import Gradients
from torusrun.training.sync.planner import PROFILED_STEPS, Planner
from torusrun.training.sync.plans import Layout, expected_order
from torusrun.training.sync.synchronization import NO_BUFFERS

NODES = ["n1", "n2"]
METHODS = ("torch's DDP", "one", "ddp", "equal 5", "fujitsu", "exact")
PIXELS, BATCH = (
    96,
    24,
)  # backward is long enough to hide links below 1 Gbit/s: faster links keep the two cores busy
RESNET50_BYTES = 4 * sum(tensor.parameters for tensor in tensors())

Loss = Callable[[nn.Module], Tensor]


@dataclass(frozen=True)
class Case:
    """`make` returns a model and its loss; `scale` is the ratio of its gradients' bytes to ResNet-50's."""

    title: str
    make: Callable[[], tuple[nn.Module, Loss]]
    bits_per_s: float
    scale: float = 1.0


@dataclass(frozen=True)
class Found:
    backward_s: float
    exposed_s: float
    buckets: int


def replayed(scale: float, backward_s: float, bits_per_s: float) -> Case:
    layers = tensors()
    sizes = [max(1, round(layer.parameters * scale)) for layer in layers]
    ready = ready_s(layers, backward_s)
    title = f"replayed, {4 * sum(sizes) / 1e6:.1f} MB"
    return Case(title, lambda: (Replayed(sizes, ready), lambda module: module()), bits_per_s, scale)


def real(bits_per_s: float) -> Case:
    def make() -> tuple[nn.Module, Loss]:
        torch.manual_seed(1)
        images, labels = torch.randn(BATCH, 3, PIXELS, PIXELS), torch.randint(1000, (BATCH,))
        model = residual.build_resnet50(classes=1000, shape=(3, PIXELS, PIXELS), seed=1)
        return model, lambda module: functional.cross_entropy(module(images), labels)

    return Case(f"ResNet-50, {BATCH} images of {PIXELS} x {PIXELS}", make, bits_per_s)


class Stock:
    """torch's DDP with the methods of Gradients for a step."""

    def __init__(self, model: nn.Module, scale: float) -> None:
        limits: dict[str, Any] = {} if scale == 1 else {"bucket_cap_mb_list": [scale, 25 * scale]}
        self.module = DistributedDataParallel(model, gradient_as_bucket_view=True, **NO_BUFFERS, **limits)

    def clear(self) -> None:
        self.module.zero_grad()

    def begin(self, loss: Tensor, stop: bool) -> None:
        pass

    def arriving(self) -> Iterator[Any]:
        return iter(())


def synchronized(method: str, model: nn.Module, scale: float, folder: Path) -> tuple[Gradients | Stock, Planner | None]:
    """The gradients of a model, averaged by `method`."""
    if method == "torch's DDP":
        return Stock(model, scale), None
    gradients = Gradients(model, build("torus", (len(NODES),)))
    if method == "exact":
        return gradients, Planner(gradients, folder / "buckets.json", {}, dist.get_rank())
    order = expected_order(len(gradients.parameters))
    sizes = [gradients.parameters[number].nbytes / scale for number in order]
    name, _, count = method.partition(" ")
    counts = plans.equal_buckets(sizes, int(count)) if count else plans.by_shape(name, sizes)  # type: ignore[arg-type]
    gradients.lay_out(Layout(order, counts))
    return gradients, None


def measure(lab: ShapedRacks, case: Case, method: str, rounds: int) -> Found:
    """The median of `rounds` steps, after the steps that open connections and measure for the plan."""
    warm_up = 1 + (PROFILED_STEPS if method == "exact" else 2)

    def work(rank: int) -> list[float]:
        model, loss_of = case.make()
        sync, planner = synchronized(method, model, case.scale, Path(folder))
        last = [0.0]
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda _: last.__setitem__(0, time.perf_counter()))
        backward_s, exposed_s = [], []
        for step in range(warm_up + rounds):
            if planner:
                planner.before_step(step)
            sync.clear()
            loss = loss_of(sync.module)
            dist.barrier()
            sync.begin(loss, False)
            started_s = time.perf_counter()
            loss.backward()
            for _ in sync.arriving():
                pass
            ends = _latest(last[0], time.perf_counter())
            backward_s.append(ends[0] - started_s)
            exposed_s.append(ends[1] - ends[0])
        buckets = len(sync.buckets) if isinstance(sync, Gradients) else 0
        return [statistics.median(backward_s[warm_up:]), statistics.median(exposed_s[warm_up:]), buckets]

    with tempfile.TemporaryDirectory() as folder:
        backward_s, exposed_s, buckets = together(lab, NODES, 1, work)
    return Found(backward_s, exposed_s, round(buckets))


def reduce_s(lab: ShapedRacks, elements: int, rounds: int) -> float:
    """The median time of the all-reduce of one vector, on links without other traffic."""

    def work(rank: int) -> float:
        reduce = build("torus", (len(NODES),))
        vector = torch.zeros(reduce.padded(elements))
        return statistics.median(times_s(lambda: reduce.start(vector).wait(), rounds))

    return together(lab, NODES, 1, work)


def _latest(*times_s: float) -> list[float]:
    """The times of the last rank, by this machine's clock."""
    latest = torch.tensor(times_s, dtype=torch.float64)
    dist.all_reduce(latest, dist.ReduceOp.MAX)
    return latest.tolist()


@contextmanager
def real_time() -> Iterator[None]:
    """Give ranks, which mostly sleep, priority over all other programs, which would be measured too."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def compare(case: Case, methods: Sequence[str], rounds: int) -> None:
    with ShapedRacks({"r": NODES}, case.bits_per_s, case.bits_per_s) as lab:
        model = case.make()[0]
        elements = [parameter.numel() for parameter in model.parameters()]
        all_s, floor_s = reduce_s(lab, sum(elements), 1), reduce_s(lab, elements[0], 15)
        found = {method: measure(lab, case, method, rounds) for method in methods}
    backward_s, stock_s = found["one"].backward_s, found["torch's DDP"].exposed_s
    print(
        f"{case.title}, {case.bits_per_s / 1e6:.0f} Mbit/s: backward {backward_s * 1e3:.0f} ms, all-reduce of all "
        f"{all_s * 1e3:.0f} ms: compute {backward_s / all_s:.1f} x communication; floor {floor_s * 1e3:.1f} ms"
    )
    print(f"  {'plan':14}{'buckets':>8}{'exposed ms':>12}{'above floor':>13}{'DDP / it':>10}")
    for method, one in found.items():
        buckets = one.buckets or "-"
        above_s = one.exposed_s - floor_s
        print(
            f"  {method:14}{buckets:>8}{one.exposed_s * 1e3:12.1f}{above_s * 1e3:13.1f}{stock_s / one.exposed_s:10.1f}"
        )
    print(flush=True)


def backward_alone_s(case: Case) -> float:
    """The time of backward with two ranks at the same time, because they share the machine."""

    def work(rank: int) -> float:
        model, loss_of = case.make()
        losses: list[Any] = []
        return statistics.median(times_s(lambda: losses.pop().backward(), 3, lambda: losses.append(loss_of(model))))

    with ShapedRacks({"r": NODES}, 1e9, 1e9) as lab:
        return together(lab, NODES, 1, work)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {time.strftime('%F')}, {os.cpu_count()} cores")
    print(f"2 nodes x 1 rank, gloo, median of {rounds} steps, of {max(5, rounds // 3)} where backward is real\n")
    with real_time():
        compare(replayed(0.1, 0.8, 200e6), METHODS, rounds)
        compare(replayed(0.1, 0.25, 200e6), METHODS, rounds)
    bits_per_s = 2 * 8 * RESNET50_BYTES / backward_alone_s(real(1e9))  # an all-reduce then takes half as long
    compare(real(bits_per_s), METHODS, max(5, rounds // 3))


if __name__ == "__main__":
    main()
