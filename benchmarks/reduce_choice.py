"""The all-reduce that `train.sync.all_reduce: auto` takes, against gloo's own and the torus, at each size.

`python -m benchmarks.reduce_choice [ROUNDS] [FABRIC]` as root; FABRIC is 1, 2 or 3; all by default. On shaped racks as
in `benchmarks.allreduce`: first the ranks measure both as `torusrun calibrate` does, which gives the limits; then
all three are timed anew, in turn. A time is that of the slowest rank, the least of the rounds: load only adds to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.allreduce import NODE_BITS_PER_S, ONE_RACK, TWO_RACKS, Fabric
from benchmarks.shaped_racks import ShapedRacks
from benchmarks.shaped_ranks import together
from torusrun.orchestrator.place.cost.by_size import quicker
from torusrun.training import measure
from torusrun.training.collectives.all_reduce import build
from torusrun.training.collectives.interface import AllReduce

CPU = torch.device("cpu")
SIZES_BYTES = tuple(2**power for power in (12, 14, 16, 18, 19, 20, 21, 22))
FABRICS: dict[str, tuple[Fabric, tuple[int, ...]]] = {
    "1": (Fabric(ONE_RACK, 2, NODE_BITS_PER_S), (2, 4)),
    "2": (Fabric(TWO_RACKS, 2, NODE_BITS_PER_S / 2), (2, 2, 2)),
    "3": (Fabric({"ra": ["n1"]}, 4, NODE_BITS_PER_S), (2, 2)),  # within one node, over no link
}


def compared(dims: Sequence[int], rounds: int, rank: int) -> dict[str, Any]:
    """The limits by a measurement, and the least times of gloo's own, the torus and the choice in another one."""
    both = build("flat", tuple(dims)), build("torus", tuple(dims))

    def times(several: Sequence[AllReduce], repeats: int) -> list[tuple[float, ...]]:
        return [(size, *measure.least_s(several, torch.ones(size // 4), CPU, repeats)) for size in SIZES_BYTES]

    spans = quicker(times(both, measure.REPEATS))
    rows = times((*both, build("auto", tuple(dims), spans=spans)), rounds)
    return {"spans": [(span.from_bytes, span.all_reduce) for span in spans], "rows": rows}


def main() -> None:
    rounds, asked = int(sys.argv[1]) if len(sys.argv) > 1 else 9, sys.argv[2:] or list(FABRICS)
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {time.strftime('%F')}, 2 cores")
    links = f"nodes {NODE_BITS_PER_S / 1e6:.0f} Mbit/s, fp32, least of {rounds} or more times"
    print(f"{links}; /: time of the choice over another")
    for fabric, dims in (FABRICS[name] for name in asked):
        with ShapedRacks(fabric.racks, NODE_BITS_PER_S, fabric.uplink_bits_per_s) as lab:
            found = together(lab, fabric.best, fabric.per_node, partial(compared, dims, rounds))
        limits = ", ".join(f"{name} from {first}" for first, name in found["spans"])
        print(f"\n{fabric}, grid {'x'.join(map(str, dims))}; limits in bytes: {limits}")
        print(
            f"  {'bytes':>9}{'gloo ms':>10}{'torus ms':>10}{'choice ms':>11}{'/ gloo':>9}{'/ torus':>9}{'/ better':>10}"
        )
        for size, gloo_s, torus_s, choice_s in found["rows"]:
            ratios = choice_s / gloo_s, choice_s / torus_s, choice_s / min(gloo_s, torus_s)
            times = f"{gloo_s * 1e3:10.1f}{torus_s * 1e3:10.1f}{choice_s * 1e3:11.1f}"
            print(f"  {size:9.0f}{times}{ratios[0]:9.3f}{ratios[1]:9.3f}{ratios[2]:10.3f}", flush=True)


if __name__ == "__main__":
    main()
