"""The results of a measuring run, in a file next to the site's file: links, and the times of a step and an image.

Latency and time per byte of every link class are fitted by least squares. Source: derived. time = steps * alpha + bytes
sent by one rank * beta, with steps and bytes as in place/cost/. Relative errors are minimised, so that a small
all-reduce counts as much as a large one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.keys.kinds import LINE, SPREADS
from torusrun.orchestrator.keys.load import load, measured_at, measured_place
from torusrun.orchestrator.keys.measured import DataTimes, Measured, ModelTimes
from torusrun.orchestrator.keys.site import SiteMeasurements
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.place.cost.by_size import quicker
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.all_reduces import measured_as
from torusrun.training.counted import counted
from torusrun.training.recipe.names import is_own
from torusrun.training.reporting.events import DECODE, MEAN, MEASURED, READ, READ_AGAIN, SAVE

MOST_RANKS, MOST_BYTES, LEAST_S, MOST_S = 10_000_000, 1e15, 1e-9, 1e6


@dataclass(frozen=True)
class MeasuredTime:
    """A measured all-reduce on a link class."""

    link: str
    ranks: int
    size_bytes: float
    time_s: float

    @property
    def terms(self) -> tuple[float, float]:
        """The factors of alpha and beta: the steps of a ring, and the bytes that one rank sends."""
        steps = 2 * (self.ranks - 1)
        return steps, steps / self.ranks * self.size_bytes


@dataclass(frozen=True)
class Fit:
    """A link class: the cost of a step and of a byte, and the largest error against the measured times."""

    link: str
    ranks: int
    alpha_s: float
    beta_s_per_byte: float
    worst_percent: float
    rows: int


def fits(rows: Sequence[MeasuredTime]) -> list[Fit]:
    """The Fit of each link class, in the order of the rows. Raises UserError if the rows do not determine it."""
    return [_fit(link, [row for row in rows if row.link == link]) for link in dict.fromkeys(row.link for row in rows)]


def _row(row: Mapping[str, Any]) -> MeasuredTime:
    """A row of the metrics. Raises UserError if it is damaged."""
    try:
        measured = MeasuredTime(row["link"], row["ranks"], float(row["bytes"]), float(row["time_s"]))
        named = isinstance(measured.link, str) and measured.link and row["operation"] == "all_reduce"
        counted = type(measured.ranks) is int and 2 <= measured.ranks <= MOST_RANKS
        if not (named and counted and 0 <= measured.size_bytes <= MOST_BYTES and LEAST_S <= measured.time_s <= MOST_S):
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UserError(
            f"a measured link must have a name, an all_reduce, ranks (2 or more), bytes, and a time: {str(row)[:80]}"
        ) from None
    return measured


def _fit(link: str, rows: list[MeasuredTime]) -> Fit:
    alpha, beta = _least_squares([(steps / r.time_s, sent / r.time_s) for r in rows for steps, sent in [r.terms]], link)
    if beta <= 0:
        raise UserError(f"{link}: larger messages do not take longer in these rows; measure larger ones too")
    alpha = max(alpha, 0.0)
    worst = max(abs((steps * alpha + sent * beta) / row.time_s - 1) for row in rows for steps, sent in [row.terms])
    return Fit(link, max(row.ranks for row in rows), alpha, beta, 100 * worst, len(rows))


def _least_squares(rows: list[tuple[float, float]], link: str) -> tuple[float, float]:
    """alpha and beta with a alpha + b beta nearest to 1 for all (a, b); 2 x 2 normal equations with scaled columns."""
    wide = max(a for a, _ in rows), max(b for _, b in rows) or 1.0
    scaled = [(a / wide[0], b / wide[1]) for a, b in rows]
    aa, ab, bb = sum(a * a for a, _ in scaled), sum(a * b for a, b in scaled), sum(b * b for _, b in scaled)
    a1, b1 = sum(a for a, _ in scaled), sum(b for _, b in scaled)
    determinant = aa * bb - ab * ab
    if determinant < 1e-12 * max(aa * bb, 1e-300):
        raise UserError(f"{link}: needs measured times of at least two different sizes")
    return (a1 * bb - b1 * ab) / determinant / wide[0], (b1 * aa - a1 * ab) / determinant / wide[1]


@dataclass(frozen=True)
class MeasuredInput:
    """Microseconds of an image of a data set on one rank: read from the file system, from the cache, and decoded.

    `core_us` is the time of a core to decode an image. The first two are None for a data set that only decodes.
    """

    data: str
    decode_us: float
    core_us: float
    read_us: float | None
    cached_us: float | None

    @property
    def slower_us(self) -> float:
        """How much longer an image takes from the file system than from the cache."""
        return max(0.0, (self.read_us or 0.0) - (self.cached_us or 0.0))


@dataclass(frozen=True)
class Calibration:
    """The results of a measuring run on `ranks`, whose steps differed by `spread` of their mean."""

    run: str
    links: tuple[Fit, ...]
    model: str
    step_us: float  # of a step, without its images
    image_us: float
    save_us: float | None  # that all ranks wait for a checkpoint
    ranks: int
    spread: float
    input: MeasuredInput | None = None
    program: str = ""  # the model with what its training changes, or the model alone
    batch: int = 0  # of a rank
    tensors: Mapping[str, Sequence[int]] = field(default_factory=dict)  # parameters, by model
    samples: Mapping[str, Sequence[int]] = field(default_factory=dict)  # for training and for tests, by data set
    over: str = ""  # what its all-reduces ran over
    all_reduces: tuple[tuple[float, float, float], ...] = ()  # bytes, microseconds by the library and by the torus

    def as_json(self) -> dict[str, Any]:
        read = self.input and self.input.__dict__
        return {**self.__dict__, "links": [fit.__dict__ for fit in self.links], "input": read}


def keep(path: str, folder: RunFolder, *, site: str | None, settings: Sequence[str]) -> tuple[Path, Calibration]:
    """Write the results next to the site file of the run file at `path`. The rates of other models are kept."""
    site_file = Path(load(path, site=site, settings=settings).site_source)
    fitted = of(folder)
    before = measured_at(site_file)
    place = measured_place(site_file)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place, _text(fitted, before))
    return place, fitted


def of(folder: RunFolder) -> Calibration:
    """Fit the metrics of a measuring run. Raises UserError if they are incomplete."""
    rows = [row for row in metrics.rows(folder.metrics) if row.get("event") == MEASURED]
    newest = [row for row in rows if row["attempt"] == rows[-1]["attempt"]]
    computed = [row for row in newest if "model" in row]
    if len(computed) != 2:
        raise UserError(f"{folder.metrics}: it has no complete measurement")
    saved = [row["time_s"] * 1e6 for row in newest if row.get("operation") == SAVE]
    counts = next((row for row in newest if "counted" in row), {})
    (few, few_s), (many, many_s) = [(row["batch"], row["time_s"]) for row in computed]
    image_s = max((many_s - few_s) / (many - few), 0.0) or many_s / many
    return Calibration(
        folder.run_id,
        tuple(fits([_row(row) for row in newest if "link" in row])),
        computed[0]["model"],
        max(few_s - few * image_s, 0.0) * 1e6,
        image_s * 1e6,
        saved[-1] if saved else None,
        computed[0]["ranks"],
        computed[0]["spread"],
        _input({row["operation"]: row for row in newest if "data" in row}),
        computed[0]["program"],
        few,
        {counts["counted"]: counts["tensors"]} if counts else {},
        {counts["of"]: counts["halves"]} if counts else {},
        *_all_reduces([row for row in newest if row.get("operation") == MEAN]),
    )


def _all_reduces(rows: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[tuple[float, float, float], ...]]:
    """What they ran over, and the times; raises UserError for a damaged row."""
    if not rows:
        return "", ()
    try:
        over = LINE.parse(measured_as(*(rows[0][name] for name in ("grid", "nodes", "library", "wire"))))
        times = [(row["bytes"], row["library_s"], row["torus_s"]) for row in rows]
        if not all(1 <= size <= MOST_BYTES and LEAST_S <= min(of) <= max(of) <= MOST_S for size, *of in times):
            raise ValueError
        return over, tuple((size, round(library * 1e6, 3), round(torus * 1e6, 3)) for size, library, torus in times)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"a measured all-reduce must have its grid and its times: {str(rows[0])[:80]}") from None


def _input(rows: Mapping[str, Mapping[str, Any]]) -> MeasuredInput | None:
    """The input by the rows of each operation; None for a data set that was not measured."""
    if DECODE not in rows:
        return None
    of_image_us = {name: row["time_s"] * 1e6 / row["batch"] for name, row in rows.items()}
    core_us = rows[DECODE]["cpu_s"] * 1e6 / rows[DECODE]["batch"]
    times = (of_image_us[DECODE], core_us, of_image_us.get(READ), of_image_us.get(READ_AGAIN))
    return MeasuredInput(rows[DECODE]["data"], *times)


def words(place: Path, fitted: Calibration) -> str:
    """The results in words, for a terminal."""
    lines = [f"{'computes':12}{fitted.step_us:.0f} us a step and {fitted.image_us:.1f} us an image ({fitted.program})"]
    over = f"from step to step, over {counted(fitted.ranks, 'rank')}"
    lines.append(f"{'differs':12}by {100 * fitted.spread:.1f} % {over}")
    if fitted.save_us:
        lines.append(f"{'saves':12}{fitted.save_us / 1e3:.1f} ms a checkpoint")
    if fitted.input:
        lines.append(f"{'reads':12}{_rates(fitted.input)}")
    for fit in fitted.links:
        bandwidth, latency = f"{1e-9 / fit.beta_s_per_byte:.3g} GB/s", f"{fit.alpha_s * 1e6:.0f} us a message"
        how = f"{counted(fit.rows, 'size')} over {counted(fit.ranks, 'rank')}, worst error {fit.worst_percent:.1f} %"
        lines.append(f"{fit.link:12}{bandwidth} and {latency} ({how})")
    if fitted.all_reduces:
        wins = sum(span.all_reduce == "torus" for span in quicker(fitted.all_reduces))
        gain, size_bytes = max((library / torus, size_bytes) for size_bytes, library, torus in fitted.all_reduces)
        most = f"at most {gain:.2f} times as fast as the library's own, at {size(size_bytes)} bytes"
        lines.append(f"{'all-reduce':12}the torus is {most}{'' if wins else ', and not taken'} ({fitted.over})")
    return "\n".join([*lines, f"kept in {place}"])


def _rates(read: MeasuredInput) -> str:
    """Images per second."""
    rates = [f"{1e6 / read.core_us:,.0f} images/s a core decodes"] if read.core_us else []
    rates.append(f"{1e6 / read.decode_us:,.0f} a rank")
    stored = {"the file system": read.read_us, "the cache": read.cached_us}
    rates += [f"from {name} a rank reads {1e6 / time_us:,.0f}" for name, time_us in stored.items() if time_us]
    return f"{', '.join(rates)} ({read.data})"


def _text(results: Calibration, before: SiteMeasurements | None) -> str:
    import yaml

    values: dict[str, Any] = {"run": results.run}
    for fit in results.links:
        values[fit.link] = f"{1 / fit.beta_s_per_byte:.0f}B/s"
        values[f"{fit.link}_latency_us"] = round(fit.alpha_s * 1e6, 3)
    measured = as_written(_measured(results, before.measured if before else Measured()))
    values["measured"] = {key: _short(value) for key, value in measured.items() if value not in (None, {})}
    return (
        "# Written by torusrun calibrate; its values come before those of the site's file. Remove it to drop them.\n"
        + str(yaml.safe_dump(values, sort_keys=False))
    )


def _short(value: Any) -> Any:
    """A table without what was not measured; another value as it is."""
    if not isinstance(value, dict):
        return value
    return {
        name: {key: time for key, time in times.items() if time} if isinstance(times, dict) else times
        for name, times in value.items()
    }


def _measured(results: Calibration, before: Measured) -> Measured:
    """The times that were known `before`, with the newly measured ones in their place."""
    models, data, read = dict(before.models), dict(before.data), results.input

    def of_model(name: str, **times: Any) -> None:
        models[name] = replace(models.get(name, ModelTimes()), **times)

    def of_data(name: str, **times: Any) -> None:
        data[name] = replace(data.get(name, DataTimes()), **times)

    times = {"image_us": round(results.image_us, 3), "step_us": round(results.step_us, 3)}
    of_model(results.program, **times, ranks=results.ranks, spread=_share(results.spread), batch=results.batch)
    if results.save_us:
        of_model(results.model, save_us=round(results.save_us, 3))
    for name, tensors in results.tensors.items():
        if is_own(name.partition(" ")[0]):
            of_model(name, tensors=tuple(tensors))
    if read:
        of_data(read.data, decode_us=round(read.decode_us, 3), read_us=round(read.slower_us, 3))
    for name, samples in results.samples.items():
        if is_own(name.partition(" ")[0]):
            of_data(name, samples=tuple(samples))
    # The error is that of the slowest class, between the nodes.
    both = {**before.all_reduce, **({results.over: results.all_reduces} if results.all_reduces else {})}
    return Measured(models, data, both, _share(results.links[-1].worst_percent / 100) if results.links else None)


def _share(value: float) -> float:
    """Rounded, and no more than a site's file may have: otherwise no verb could read it."""
    return round(min(value, SPREADS.at_most or value), 5)
