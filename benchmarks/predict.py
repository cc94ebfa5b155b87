"""Predicts steps of random trainings with their 90 % intervals, and measures them afterwards over shaped links.

`python -m benchmarks.predict PREDICTIONS [--cases N] [--slow F] [--seed S] [--apart]` as root, in a clean checkout. The
cases are drawn from a seed made of the commit's hash, so nobody can choose them or fit a rule to them. Links are
calibrated first: latency and time per byte of every class, from all-reduces that load it. Then all predictions are
written to the file PREDICTIONS, which must not exist yet; then all steps are measured. 85 to 95 % of them inside their
intervals is the pass, and every miss is printed.

Backward is replayed by waiting; every group goes through the training's torus over gloo, in one chunk, as soon as it is
ready. A busy machine must not decide: `--slow 2` halves all rates of links, and ranks run under a real-time class. With
`--apart`, a barrier separates the phases of the torus, as in the model.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from benchmarks.drawn_steps import NODE_BITS_PER_S, ROUNDS, UPLINKS_BITS_PER_S, Case, Drawn, case, drawn_step
from benchmarks.packets import stream
from benchmarks.packets.recorded import packets_s, summary
from benchmarks.shaped_racks import LEAST_TIMEOUT_S, ShapedRacks
from benchmarks.shaped_ranks import times_s, together
from torusrun.orchestrator.predict.measurements import Fit, MeasuredTime, fits
from torusrun.training.collectives import chunks
from torusrun.training.collectives.interface import Way
from torusrun.training.collectives.pipeline import Pipeline
from torusrun.training.collectives.torus import Torus

SIZES_BYTES = (200_000, 800_000, 2_400_000)
PASS = (0.85, 0.95)


class Predicted(NamedTuple):
    """A case with what the formulas and the simulation of packets predict."""

    drawn: Case
    step: Drawn
    packets_s: float

    def __str__(self) -> str:
        low, high = (1e3 * bound for bound in self.step.between_s)
        return f"{1e3 * self.step.predicted_s:13.0f} ({low:.0f} to {high:.0f})"


class Apart(Pipeline):
    """The phases of a torus; no rank begins a phase before all ranks have ended the one before."""

    def run(self, ways: Sequence[Way]) -> None:
        (way,) = ways
        for _, step in way:
            dist.barrier()
            step.post()
            step.run()


def calibrated(slow: float) -> dict[str, Fit]:
    """Fits of every class of link, from all-reduces that it bounds: pairs in nodes, rings of nodes, rings of racks."""
    four, rows, node_rate = [f"n{i}" for i in range(4)], list[MeasuredTime](), NODE_BITS_PER_S / slow
    with ShapedRacks({"r": four}, node_rate, node_rate) as lab:
        rows += _rows("intra_node", lab, four, 2, [[2 * i, 2 * i + 1] for i in range(4)], 1)
        rows += _rows("node", lab, four, 1, [[0, 1, 2, 3]], 1)
        rows += _rows("node", lab, four, 2, [[0, 2, 4, 6], [1, 3, 5, 7]], 2)
    for name, bits_per_s in UPLINKS_BITS_PER_S.items():
        racks = {rack: [f"{rack}{i}" for i in range(3)] for rack in ("ra", "rb")}
        with ShapedRacks(racks, node_rate, bits_per_s / slow) as lab:
            in_turn = [host for pair in zip(*racks.values(), strict=True) for host in pair]
            rows += _rows(name, lab, in_turn, 1, [list(range(6))], 3)
    return {fit.link: fit for fit in fits(rows)}


def _rows(
    link: str, lab: ShapedRacks, hosts: Sequence[str], per_node: int, groups: Sequence[Sequence[int]], flows: int
) -> Iterator[MeasuredTime]:
    """Times of all-reduces in `groups` at the same time; `flows` of their hops load one link of the class."""

    def reduce(rank: int) -> list[float]:
        (mine,) = [own for own, members in [(dist.new_group(list(m)), m) for m in groups] if rank in members]
        vectors = [torch.ones(size // 4) for size in SIZES_BYTES]
        times = [times_s(partial(dist.all_reduce, vector, group=mine), ROUNDS) for vector in vectors]
        return [statistics.median(found) for found in times]

    for size, time_s in zip(SIZES_BYTES, together(lab, hosts, per_node, reduce), strict=True):
        yield MeasuredTime(link, len(groups[0]), size * flows, time_s)


def predictions(count: int, seed: int, links: Mapping[str, Fit]) -> list[Predicted]:
    """All cases of a seed."""
    chance, found = random.Random(seed), list[Predicted]()
    for _ in range(count):
        drawn = case(chance)
        step = drawn_step(drawn, links, chance)
        found.append(Predicted(drawn, step, packets_s(step, drawn)))
    return found


def measured_s(one: Predicted, slow: float, kind: type[Pipeline]) -> list[float]:
    """The seconds of the repetitions of a case."""
    drawn, step = one.drawn, one.step
    uplinks = {rack: UPLINKS_BITS_PER_S[name] / slow for rack, name in drawn.uplinks.items()}
    with ShapedRacks(drawn.racks, NODE_BITS_PER_S / slow, uplinks) as lab:
        found: list[float] = together(
            lab, step.hosts, drawn.per_node, lambda rank: _step_s(Torus(drawn.grid, kind), step)
        )
        return found


def _step_s(torus: Torus, step: Drawn) -> list[float]:
    """The times of the step on one rank: wait for a group's last gradient, reduce the group, take the next."""
    groups, sizes = step.groups, step.sizes
    ends = [sum(groups[: i + 1]) for i in range(len(groups))]
    vectors = [torch.ones(torus.padded(sum(sizes[end - n : end]) // 4)) for n, end in zip(groups, ends, strict=True)]

    def act() -> None:
        started_s = time.perf_counter()
        for end, vector in zip(ends, vectors, strict=True):
            time.sleep(max(0.0, started_s + step.ready_s[end - 1] - time.perf_counter()))
            torus.mean_(vector)

    return times_s(act, ROUNDS)


@contextmanager
def real_time() -> Iterator[None]:
    """What begins meanwhile runs before all ordinary processes."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def commit() -> str:
    """The hash of the commit that is checked out. Exits if a file of it has changes."""
    if _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("the seed is the commit's hash, but files have changes: commit them first, or name --seed")
    return _git("rev-parse", "HEAD")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def written(found: Sequence[Predicted], place: Path) -> str:
    """Write all predictions to a new file; returns the digest of its text."""
    rows = [f"{number:4}{one}{1e3 * one.packets_s:12.0f}  {one.drawn}" for number, one in enumerate(found, 1)]
    head = (
        "case  predicted ms (90 %)  packets ms  racks@uplinks     ranks/node, grid, order, gradients, groups, backward"
    )
    text = "\n".join([head, *rows]) + "\n"
    with place.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(text.encode()).hexdigest()


def compared(found: Sequence[Predicted], slow: float, kind: type[Pipeline]) -> bool:
    """Measure all cases and print them, the misses again at the end; returns whether the coverage is a pass."""
    lines, errors, packets = list[tuple[float, str]](), list[float](), list[float]()
    print("\nerror %, ! outside  predicted ms (90 %)  measured ms, range %  racks@uplinks     ranks/node, grid, ...")
    for one in found:
        with real_time():
            times = measured_s(one, slow, kind)
        middle_s = statistics.median(times)
        errors.append(100 * (one.step.predicted_s / middle_s - 1))
        packets.append(100 * (one.packets_s / middle_s - 1))
        spread = 100 * (max(times) - min(times)) / middle_s
        sign = " " if one.step.between_s.holds(middle_s) else "!"
        lines.append((errors[-1], f"{sign}{errors[-1]:+7.1f}{one}{1e3 * middle_s:9.0f}{spread:6.1f}  {one.drawn}"))
        print(lines[-1][1], flush=True)
    outside = sorted((line for line in lines if line[1].startswith("!")), key=lambda line: -abs(line[0]))
    inside = len(lines) - len(outside)
    print(f"\n{summary('formula', errors)}\n{summary('packets', packets)}")
    is_pass = PASS[0] <= inside / len(lines) <= PASS[1]
    print(f"inside the 90 % interval: {inside} of {len(lines)}: {'pass' if is_pass else 'FAILURE'} (85 to 95 %)")
    print("\noutside:\n" + ("\n".join(line for _, line in outside) or "none"))
    return is_pass


def main() -> bool:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict")
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--apart", action="store_true")
    asked = parser.parse_args()
    named = f"seed {asked.seed}" if asked.seed is not None else f"commit {commit()}"
    seed = asked.seed if asked.seed is not None else int(named.split()[1][:8], 16)
    chunks.MOST_DOUBLINGS = 0  # one chunk, as in the model
    stream.LEAST_TIMEOUT_S = LEAST_TIMEOUT_S
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {time.strftime('%F %R')}")
    print(f"{asked.cases} cases of {named} (seed {seed}){', phases kept apart' if asked.apart else ''}")
    print(f"nodes {NODE_BITS_PER_S / asked.slow / 1e6:g} Mbit/s, uplinks 25, 50 and 100 / {asked.slow:g}; ", end="")
    print(f"medians of {ROUNDS} repetitions; load {os.getloadavg()[0]:.1f}\n")
    with real_time():
        links = calibrated(asked.slow)
    for fit in links.values():
        print(
            f"{fit.link:12}{8e-6 / fit.beta_s_per_byte:9.1f} Mbit/s{fit.alpha_s * 1e3:8.3f} ms   "
            f"{fit.rows} rows, worst {fit.worst_percent:.1f} %"
        )
    found = predictions(asked.cases, seed, links)
    digest = written(found, asked.predictions)
    print(f"\n{len(found)} predictions in {asked.predictions}, SHA-256 {digest}, {time.strftime('%F %R')}", flush=True)
    is_pass = compared(found, asked.slow, Apart if asked.apart else Pipeline)
    print(f"\nend {time.strftime('%F %R')}, load {os.getloadavg()[0]:.1f}")
    return is_pass


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
