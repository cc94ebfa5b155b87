"""Stretches: consecutive phases of a training that want the same number of nodes. An attempt trains one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torusrun.orchestrator.keys.run import RunSpec
from torusrun.training.counted import counted


@dataclass(frozen=True)
class Stretch:
    """The phases `first` to `last` (counted from 1) on `nodes` nodes, from epoch `begins` until epoch `ends`."""

    first: int
    last: int
    nodes: int
    begins: float
    ends: float

    @property
    def phases(self) -> str:
        """'phase 2' or 'phases 2 to 4'."""
        return f"phase {self.first}" if self.first == self.last else f"phases {self.first} to {self.last}"

    @property
    def on_nodes(self) -> str:
        """'1 node' or '4 nodes'."""
        return counted(self.nodes, "node")


def stretches(run: RunSpec) -> tuple[Stretch, ...]:
    """All stretches in order; () if no phase names its nodes: then every attempt may train the whole run."""
    phases = () if run.command else run.train.phases
    if not any(phase.nodes for phase in phases):
        return ()
    parts: list[Stretch] = []
    nodes, begins = run.nodes, 0.0
    for number, phase in enumerate(phases, 1):
        nodes = phase.nodes or nodes
        if parts and parts[-1].nodes == nodes:
            parts[-1] = replace(parts[-1], last=number, ends=phase.until)
        else:
            parts.append(Stretch(number, number, nodes, begins, phase.until))
        begins = phase.until
    return tuple(parts)


def stretch_at(run: RunSpec, epochs: float) -> Stretch | None:
    """The stretch that contains `epochs`, or the last one; None if the run has no stretches."""
    parts = stretches(run)
    return next((stretch for stretch in parts if epochs < stretch.ends), parts[-1] if parts else None)


def for_first_attempt(run: RunSpec) -> RunSpec:
    """The run on the nodes of its first stretch. Every phase then names its nodes, independent of the run's nodes."""
    parts = stretches(run)
    if not parts:
        return run
    of = {number: stretch.nodes for stretch in parts for number in range(stretch.first, stretch.last + 1)}
    phases = tuple(replace(phase, nodes=of[number]) for number, phase in enumerate(run.train.phases, 1))
    return replace(run, nodes=parts[0].nodes, train=replace(run.train, phases=phases))


def on_fixed_nodes(run: RunSpec, nodes: int) -> RunSpec:
    """The run on `nodes` nodes, for all phases."""
    phases = tuple(replace(phase, nodes=None) for phase in run.train.phases)
    return replace(run, nodes=nodes, train=replace(run.train, phases=phases))


def in_words(parts: Sequence[Stretch]) -> str:
    """'1 node until epoch 3, then 2 nodes until epoch 6'."""
    return ", then ".join(f"{stretch.on_nodes} until epoch {stretch.ends:g}" for stretch in parts)
