"""All schemes over the number of GPUs: a table, curves, and where each scheme becomes too slow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torusrun.orchestrator.base.shown.curve import Axis, Curve
from torusrun.orchestrator.base.shown.numbers import between, ms, thousands
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.place.cost.links import Network
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.predict.answers.predicted import Predicted
from torusrun.orchestrator.predict.model.compute import Device
from torusrun.orchestrator.predict.model.stragglers import largest_ranks
from torusrun.orchestrator.predict.model.sweep import BYTES, Size, breaks, sizes
from torusrun.orchestrator.predict.model.sweep import sweep as sizes_of
from torusrun.training.counted import counted

NAMES = {name: name for name in ("ring", "tree", "halving", "leaders", "torus")} | {"levels": "3 levels"}
PERCENT = "{:.1%}".format
KNOWN = "the efficiency and its 90 % interval contain the wait for the slowest rank, not the doubt of the device's rate"

WIDTH, HEIGHT = 68, 18  # of the curves
COLUMNS: tuple[Column[Size], ...] = (
    Column("GPUs", lambda size: size.gpus, thousands, key="gpus"),
    *(Column(word, partial(Size.cost_s, name=name), ms) for name, word in NAMES.items()),
    Column("bound", lambda size: size.bound_s, ms, key="bound_s"),
    Column("best grid", lambda size: size.best_grid, lambda dims: str(Grid(dims)), key="best_grid"),
    Column("least", lambda size: NAMES[size.best.name]),
    Column("images/s", lambda size: size.images_per_s, thousands, key="images_per_s"),
    Column(None, lambda size: size.images_per_s_between, key="images_per_s_90"),
    Column("efficiency", lambda size: size.efficiency, PERCENT, key="efficiency"),
    Column("90 %", lambda size: size.efficiency_between, lambda ends: between(ends, PERCENT), key="efficiency_90"),
    Column(None, lambda size: {str(one): one.cost_s(BYTES) for one in size.schemes.values()}, key="all_reduce_s"),
    Column(None, lambda size: str(size.best), key="best"),
)


def sweep(links: Network, device: Device, batch: int, first: int, last: int) -> Predicted:
    """The comparison from `first` to `last` GPUs, with `batch` images on each."""
    found = sizes_of(links, device, batch, sizes(first, last, links.levels[0].members))
    table, curve, broken = Table(COLUMNS, found), _curve(found), breaks(found)
    record = {
        "gradient_bytes": BYTES,
        "device": device.name,
        "local_batch": batch,
        "sizes": table.as_json(),
        "breaks_at_gpus": broken,
    }
    lines = [
        f"one all-reduce of {BYTES / 1e6:.1f} MB, ms; a step of {batch} images per {device.name}",
        *table.lines(),
        KNOWN,
        *_beyond(found),
        "",
        *curve.framed(curve.letters(WIDTH, HEIGHT), "|"),
        curve.foot("", WIDTH + 1),
        ", ".join([*(f"{name[0]} {name}" for name in curve.curves), "* several"]),
        "",
        "twice the best or more, from",
        *(f"  {NAMES[name]:9}{counted(gpus, 'GPU') if gpus else 'nowhere here'}" for name, gpus in broken.items()),
    ]
    if found[-1].gpus > links.ranks:
        lines.append(f"beyond {links.ranks:,} GPUs the network is assumed to be larger, with the same links")
    return Predicted(record, lines, curve)


def _beyond(found: Sequence[Size]) -> list[str]:
    """Why the intervals of the largest sizes are wider."""
    largest = largest_ranks()
    more = "their intervals have room for a spread with a longer tail"
    return [f"nothing is published about more than {largest:,} GPUs: {more}"] if found[-1].gpus > largest else []


def _curve(found: Sequence[Size]) -> Curve:
    """The time of every scheme, with logarithmic axes."""
    named = {word: [(size.gpus, size.cost_s(name)) for size in found] for name, word in NAMES.items()}
    bound = [(size.gpus, size.bound_s) for size in found if size.bound_s > 0]
    gpus, time = Axis(lambda count: counted(round(count), "GPU"), log=True), Axis(lambda s: f"{ms(s)} ms", log=True)
    return Curve({**named, "bound": bound}, gpus, time)
