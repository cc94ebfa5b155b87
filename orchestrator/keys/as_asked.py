"""A site as a run takes it: with the run's request over the site's, and perhaps on a part of a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torusrun.orchestrator.keys.request import Resources
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site


def as_asked(run: RunSpec, site: Site) -> tuple[RunSpec, Site, list[tuple[str, str]]]:
    """(the run with its number of ranks, the site as the run takes it, mistakes by their keys in the run).

    The site's `node` stays a whole node; `request` says what of it is taken.
    """
    asked, node = run.request.over(site.request), site.node
    if asked.gpus and run.ranks_per_node is None:
        run = replace(run, ranks_per_node=max(1, node.ranks * asked.gpus // max(node.gpus, asked.gpus)))
    ranks = run.ranks_per_node or node.ranks
    taken, wrong = replace(site, request=asked), list(_beyond(run, asked, site, ranks))
    if asked.gpus in (None, node.gpus) or not site.parts or wrong:
        return run, taken, wrong
    least = ranks * (run.request.cpus_per_rank or 1), run.request.memory_of(ranks) or 0
    fit = [part for part in site.parts if part.gpus == asked.gpus and part.cpus >= least[0]]
    part = next((part for part in fit if (part.memory_bytes or least[1]) >= least[1]), None)
    if part is None or run.nodes > 1:
        parts = "; ".join(f"{' '.join(part.ask)}: {part.gpus} GPUs, {part.cpus} cores" for part in site.parts)
        return run, taken, [("request.gpus", f"'request.gpus': no part of one node has all of this; parts are {parts}")]
    each = run.request.cpus_per_rank or part.cpus // ranks
    asked = replace(asked, cpus_per_rank=each, memory_bytes=None, memory_per_rank_bytes=None)
    return run, replace(taken, request=asked, ask=part.ask, queue=part.queue or site.queue), []


def uses_gpus(run: RunSpec, site: Site) -> bool:
    """Whether the ranks of a run compute on GPUs: its job has some, and its training is not for CPUs."""
    return site.gpus > 0 and run.train.device != "cpu"


def _beyond(run: RunSpec, asked: Resources, site: Site, ranks: int) -> Iterator[tuple[str, str]]:
    """What a run takes beyond the limits of its site."""
    if (asked.gpus or 0) > site.node.gpus:
        yield "request.gpus", f"'request.gpus' ({asked.gpus}) is more than a node has (node.gpus: {site.node.gpus})"
    if asked.memory_bytes and asked.memory_per_rank_bytes:
        yield "request.memory", "'request.memory' and 'request.memory_per_rank' exclude each other; leave one out"
    memory, most = asked.memory_of(ranks) or 0, site.most
    if most.memory_bytes and memory > most.memory_bytes:
        key = "request.memory" if asked.memory_bytes else "request.memory_per_rank"
        of = f"{memory / 2**30:g} GiB of a node; the site's most.memory is {most.memory_bytes / 2**30:g} GiB"
        yield key, f"'{key}' takes {of}"
    if most.time_s and run.time_s > most.time_s:
        yield "time", f"'time' ({run.time_s:g}s) is more than the site's most.time ({most.time_s:g}s)"
