"""Compares formulas, the simulation of packets and measurements: the recorded steps of `benchmarks.predict`.

`python -m benchmarks.packets RECORD` reads what `python -m benchmarks.predict` has printed, draws its cases
again from its seed, and simulates each. It measures nothing, and needs no root. The links are the calibrated ones; what
the shaped network adds is known: its links pass 32 KB at once after a pause. A rank handles a message in 0.3 ms: on the
two cores, eight ranks took 5.5 ms for an all-reduce of four messages each.

Records until 2026-11-21 are of an earlier torus: its rows began to receive with each phase, on one group for both
halves, and its columns used gloo's all-reduce. `_old` simulates that one, from the same parts.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from benchmarks.drawn_steps import ROUNDS, Case, Drawn, case, drawn_step
from benchmarks.packets import stream
from benchmarks.packets.gloo import Gloo, Program
from benchmarks.packets.schedule import ITEM_BYTES, Half, Job, gloo_ring, pass_on, receives, torus
from benchmarks.packets.simulate import Placed, Programs
from benchmarks.shaped_racks import LEAST_TIMEOUT_S
from torusrun.orchestrator.place.hosts.model import Cluster, Link
from torusrun.orchestrator.predict.measurements import Fit
from torusrun.training.collectives import chunks
from torusrun.training.collectives.interface import Mesh

LAST_OLD = "2026-11-21"
BURST_BYTES, HANDLING_S = 32 * 1024, 3e-4
LINK = re.compile(r"^(intra_node|inside|node|uplink-\d+) +([\d.]+) Mbit/s +([\d.]+) ms", re.MULTILINE)
CASE = re.compile(r"^[! ] *[+-]\d+\.\d +\d+(?: \(\d+ to \d+\))? +(\d+)(?: +\d+\.\d)?  (.+)$", re.MULTILINE)
SEED = re.compile(r"seed (\d+)\b(?! \(seed)")
SUMMARY = re.compile(r"^(?:the worst|outside):", re.MULTILINE)
NEAR, GOAL_WORST = 5.0, 8.0


def packets_s(step: Drawn, drawn: Case, old: bool = False) -> float:
    """The median of the rounds that are measured; one more comes before them."""
    ends = list(accumulate(step.groups))
    jobs = [
        Job(step.ready_s[end - 1], sum(step.sizes[end - count : end]) // ITEM_BYTES)
        for end, count in zip(ends, step.groups, strict=True)
    ]
    placed = Placed(_bare(step.known), step.hosts, drawn.per_node, BURST_BYTES, HANDLING_S)
    return statistics.median(placed.rounds_s((_old if old else _new)(drawn.grid, jobs), ROUNDS + 1)[1:])


def _bare(known: Cluster) -> Cluster:
    """The links without latency: what the fits call so is what a rank needs to handle a message."""
    node = Link(known.node.inter_node.bandwidth_bytes_per_s)
    switches = tuple(
        replace(switch, uplink=Link(switch.uplink.bandwidth_bytes_per_s)) if switch.uplink else switch
        for switch in known.switches
    )
    hosts = tuple(replace(host, network=node) for host in known.hosts)
    near = Link(known.node.intra_node.bandwidth_bytes_per_s)
    return Cluster(replace(known.node, inter_node=node, intra_node=near), hosts, switches)


def _new(dims: Sequence[int], jobs: Sequence[Job]) -> Programs:
    padded = [replace(job, elements=_up(job.elements, Mesh(dims).ranks)) for job in jobs]
    return lambda gloo, rank: torus(gloo, dims, rank, padded, carriers=1)


def _old(dims: Sequence[int], jobs: Sequence[Job]) -> Programs:
    mesh, columns = Mesh(dims), dims[1]

    def steps(gloo: Gloo, rank: int) -> Program:
        begun_s, (x, y), row = gloo.clock.now_s, mesh.coordinates(rank), mesh.group(0, rank)
        for job in jobs:
            yield begun_s + job.ready_s
            part = _up(job.elements, len(row)) // len(row)
            half = Half(0, row[x - 1], row[(x + 1) % len(row)], (part,) * (len(row) - 1))
            yield from pass_on(gloo, rank, half, receives(gloo, rank, half))
            if columns > 1:
                yield from gloo_ring(gloo, 1, mesh.group(1, rank), y, part)
            yield from pass_on(gloo, rank, half, receives(gloo, rank, half))

    return lambda gloo, rank: [steps(gloo, rank)]


def _up(elements: int, ranks: int) -> int:
    return -(-elements // ranks) * ranks


def recorded(text: str) -> tuple[Mapping[str, Fit], list[tuple[float, str]]]:
    """The fits of a record, and (measured seconds, the case's line) of each case."""
    links = {
        name.replace("inside", "intra_node"): Fit(name, 0, float(ms) / 1e3, 8e-6 / float(rate), 0.0, 0)
        for name, rate, ms in LINK.findall(text)
    }
    return links, [(float(ms) / 1e3, line) for ms, line in CASE.findall(SUMMARY.split(text)[0])]


def summary(name: str, errors: Sequence[float]) -> str:
    """One line: how far from the measured times."""
    sizes = sorted(map(abs, errors))
    near, worst = sum(size <= NEAR for size in sizes), sizes[-1]
    of = f"{near} of {len(sizes)} within {NEAR:g} %, {sum(size > GOAL_WORST for size in sizes)} beyond {GOAL_WORST:g} %"
    return f"{name:9} median {statistics.median(sizes):.2f} %, {of}, largest {worst:.1f} %"


def main(path: Path, say: Callable[[str], None] = print) -> None:
    text = path.read_text(encoding="utf-8")
    seed = int(SEED.findall(text)[0])
    links, cases = recorded(text)
    old = (re.findall(r"\d{4}-\d\d-\d\d", text) or [LAST_OLD])[0] <= LAST_OLD
    chance, found = random.Random(seed), list[tuple[float, float, str]]()
    chunks.MOST_DOUBLINGS = 0  # one chunk, as in the record
    if not old:  # since then no timer of TCP fires on shaped links
        stream.LEAST_TIMEOUT_S = LEAST_TIMEOUT_S
    say(f"{path}: {len(cases)} cases, seed {seed}{', the torus of that time' if old else ''}\n")
    say("packets % formula %  packets ms  measured ms  racks@uplinks     ranks/node, grid, order, ...")
    for measured_s, line in cases:
        drawn = case(chance)
        if str(drawn).split() != line.split():
            raise SystemExit(f"{path} has a case that seed {seed} does not draw: {line.strip()}")
        step = drawn_step(drawn, links, chance)
        time_s = packets_s(step, drawn, old)
        errors = [100 * (each / measured_s - 1) for each in (time_s, step.predicted_s)]
        shown = f"{errors[0]:+9.1f}{errors[1]:+10.1f}{time_s * 1e3:12.0f}{measured_s * 1e3:13.0f}  {drawn}"
        found.append((errors[0], errors[1], shown))
        say(shown)
    say(f"\n{summary('formula', [formula for _, formula, _ in found])}")
    say(summary("packets", [packets for packets, _, _ in found]))
    missed = sorted((each for each in found if abs(each[0]) > NEAR), key=lambda each: -abs(each[0]))
    say("\nmissed by packets:\n" + ("\n".join(shown for _, _, shown in missed) or "none"))
