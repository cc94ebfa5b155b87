"""The forecast of one run in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torusrun.orchestrator.base.shown.numbers import between, duration, ms, thousands
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.predict.answers import checkpoints
from torusrun.orchestrator.predict.answers.predicted import Predicted
from torusrun.orchestrator.predict.model.forecast import Forecast
from torusrun.orchestrator.predict.model.interval import largest
from torusrun.orchestrator.run.plan.phase_groups import Stretch
from torusrun.training.counted import counted


def run(f: Forecast, attempts: Sequence[tuple[Stretch, float]] = ()) -> Predicted:
    """A forecast; `attempts` are those of a run whose phases need different numbers of nodes, with their seconds."""
    parts = [
        {"nodes": stretch.nodes, "begins": stretch.begins, "ends": stretch.ends, "total_s": total_s}
        for stretch, total_s in attempts
    ]
    rows = {**_rows(f), **_attempts(attempts)}
    width = max(13, *map(len, rows)) + 1  # the name of an accuracy may be long
    lines = [*(f"{name:{width}}{text}" for name, text in rows.items()), *(f"assumed: {line}" for line in f.assumptions)]
    return Predicted({**f.as_json(), **({"parts": parts} if parts else {})}, lines)


def _rows(f: Forecast) -> dict[str, str]:
    slower = f.best_grid != f.grid and f.best_grid_all_reduce_s < f.all_reduce_s
    best = f" is {Grid(f.best_grid)}, {ms(f.best_grid_all_reduce_s)} ms" if slower else ""
    more = f" + batch norms' exchange {ms(f.norms_s)}" if f.norms_s else ""
    more += f" + wait for input {ms(f.input_s)}" if f.input_s else ""
    first = ", ".join(map(str, f.groups[:8])) + (", ..." if len(f.groups) > 8 else "")
    parts = f"{counted(f.steps, 'step')} {duration(f.train_s)}, validation {duration(f.validation_s)}"
    rows = {
        "grid": f"{Grid(f.grid)}, all-reduce of all gradients {ms(f.all_reduce_s)} ms ({_at(f, 'all_reduce_s', ms)}); "
        f"the best grid{best}",
        "step": f"{ms(f.step_s)} ms ({_at(f, 'step_s', ms)}) = forward {ms(f.forward_s)} + backward {ms(f.backward_s)} "
        f"+ fixed {ms(f.fixed_s)} + slowest rank {ms(f.stragglers_s)} + exposed communication {ms(f.exposed_s)}{more}",
        "groups": f"{len(f.groups)}, of {first} tensors" if f.groups else "none: weights are averaged, not gradients",
        "throughput": f"{thousands(f.images_per_s)} images/s ({_at(f, 'images_per_s', thousands)}) "
        f"on {counted(f.ranks, 'rank')}",
        **_input(f),
        "time": f"{duration(f.total_s)} ({_at(f, 'total_s', duration)}): {parts}",
        "node-hours": f"{f.node_hours:.4g} ({_at(f, 'node_hours', '{:.4g}'.format)})",
        **_cost(f),
        "checkpoints": checkpoints.line(f.checkpoints),
    }
    if len(f.phases) > 1:
        phases = (
            f"{part.steps} of {counted(part.batch, 'image')} in {ms(part.step_s)} ms ({between(part.interval_s, ms)})"
            for part in f.phases
        )
        rows["phases"] = "; ".join(phases)
    rows |= _target(f)
    rows["in brackets"] = _doubts(f)
    return rows


def _input(f: Forecast) -> dict[str, str]:
    """How fast the ranks read and decode images, if it is known."""
    if f.reading_s is None:
        return {}
    batch = max(f.phases, key=lambda phase: phase.steps * phase.step_s).batch
    rate, bounds = batch / f.reading_s, f.intervals["reading_s"].rate_of(batch)
    beside = "slower than the steps" if f.input_s else "in parallel with the steps, which take longer"
    return {
        "input": f"{thousands(rate)} images/s on {counted(f.ranks, 'rank')} ({between(bounds, thousands)}), {beside}"
    }


def _cost(f: Forecast) -> dict[str, str]:
    """The site's points and the GPUs' energy, of those that are known."""
    rows = {}
    if f.points is not None:
        rows["points"] = f"{f.points:.4g} ({_at(f, 'points', '{:.4g}'.format)})"
    if f.energy_kwh is not None:
        watts = 3.6e6 * f.energy_kwh / f.ranks / f.total_s
        between_kwh = _at(f, "energy_kwh", "{:.3g}".format)
        rows["energy"] = f"at most {f.energy_kwh:.3g} kWh ({between_kwh}) by the GPUs, at their limit of {watts:.0f} W"
    return rows


def _at(f: Forecast, name: str, show: Callable[[float], str]) -> str:
    return between(f.intervals[name], show)


def _target(f: Forecast) -> dict[str, str]:
    """The epochs and the time to the published accuracy; why they are not known; nothing if nobody asks."""
    if not f.epochs_source:
        return {}
    if f.epochs_to_target is None or f.to_target_s is None:
        return {f"to {f.target}": f"not known: {f.epochs_source}"}
    found = f"{f.epochs_to_target:.1f} epochs ({_at(f, 'epochs_to_target', '{:.1f}'.format)}) {f.epochs_source}"
    return {f"to {f.target}": f"{found}, {duration(f.to_target_s)} ({_at(f, 'to_target_s', duration)})"}


def _doubts(f: Forecast) -> str:
    """What the brackets are, and what widens them; an interval too wide to plan by is called so."""
    wide = "too wide to plan by, mostly because" if f.intervals["step_s"].is_wide else "mostly because"
    return f"90 % intervals, {wide} {largest(f.doubts).why}"


def _attempts(attempts: Sequence[tuple[Stretch, float]]) -> dict[str, str]:
    if not attempts:
        return {}
    rows = {
        f"attempt {number}": f"{duration(total_s)}: epochs {part.begins:g} to {part.ends:g} on {part.on_nodes}"
        for number, (part, total_s) in enumerate(attempts, 1)
    }
    together = duration(sum(total_s for _, total_s in attempts))
    return {**rows, "together": f"{together}; the lines above are for all epochs on the nodes of attempt 1"}
