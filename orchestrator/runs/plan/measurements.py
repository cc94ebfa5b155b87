"""The results of a measuring run, kept beside the site's file: links, and the times of a step and an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.base.errors import UserError
from orchestrator.base.json_files import write_text
from orchestrator.network.prediction.calibration import Fit, fits, read
from orchestrator.runs.folder import metrics
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.spec.kinds import SPREADS
from orchestrator.spec.load import find_site, load, measured_at, measured_place
from orchestrator.spec.measured import SiteMeasurements
from orchestrator.spec.problems import Mark
from training.counted import counted
from training.reporting.events import MEASURED, SAVE


@dataclass(frozen=True)
class Found:
    """The results of a measuring run on `ranks`, whose steps differed by `spread` of their mean.

    Both are None for a run of an earlier version.
    """

    run: str
    links: tuple[Fit, ...]
    model: str
    step_us: float  # of a step, without its images
    image_us: float
    save_us: float | None  # that all ranks wait for a checkpoint
    ranks: int | None
    spread: float | None

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "links": [fit.__dict__ for fit in self.links]}


def keep(path: str, folder: RunFolder, *, site: str | None, settings: Sequence[str]) -> tuple[Path, Found]:
    """Write the results beside the site file of the run file at `path`. The rates of other models there stay."""
    run = load(path, site=site, settings=settings).run
    site_file = find_site(run.site, Path(path).parent, Mark(path))
    found = of(folder)
    before = measured_at(site_file)
    place = measured_place(site_file)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place, _text(found, before))
    return place, found


def of(folder: RunFolder) -> Found:
    """Fit the metrics of a measuring run. Raises UserError if they are incomplete."""
    rows = [row for row in metrics.read(folder.metrics) if row.get("event") == MEASURED]
    newest = [row for row in rows if row["attempt"] == rows[-1]["attempt"]]
    computed = [row for row in newest if "model" in row]
    if len(computed) != 2:
        raise UserError(f"{folder.metrics}: there is no whole measurement in it")
    saved = [row["time_s"] * 1e6 for row in newest if row.get("operation") == SAVE]
    (few, few_s), (many, many_s) = [(row["batch"], row["time_s"]) for row in computed]
    image_s = max((many_s - few_s) / (many - few), 0.0) or many_s / many
    return Found(
        folder.run_id,
        tuple(fits(read({"schema": 1, "rows": [row for row in newest if "link" in row]}))),
        computed[0]["model"],
        max(few_s - few * image_s, 0.0) * 1e6,
        image_s * 1e6,
        saved[-1] if saved else None,
        computed[0].get("ranks"),
        computed[0].get("spread"),
    )


def words(place: Path, found: Found) -> str:
    """The results in words, for a terminal."""
    lines = [f"{'computes':10}{found.step_us:.0f} us a step and {found.image_us:.1f} us an image ({found.model})"]
    if found.ranks and found.spread is not None:
        over = f"from step to step, over {counted(found.ranks, 'rank')}"
        lines.append(f"{'differs':10}by {100 * found.spread:.1f} % {over}")
    if found.save_us:
        lines.append(f"{'saves':10}{found.save_us / 1e3:.1f} ms a checkpoint")
    for fit in found.links:
        bandwidth, latency = f"{1e-9 / fit.beta_s_per_byte:.3g} GB/s", f"{fit.alpha_s * 1e6:.0f} us a message"
        how = f"{counted(fit.rows, 'size')} over {counted(fit.ranks, 'rank')}, worst error {fit.worst_percent:.1f} %"
        lines.append(f"{fit.link:10}{bandwidth} and {latency} ({how})")
    return "\n".join([*lines, f"kept in {place}"])


def _text(found: Found, before: SiteMeasurements | None) -> str:
    import yaml

    values: dict[str, Any] = {"run": found.run}
    for fit in found.links:
        values[fit.link] = f"{1 / fit.beta_s_per_byte:.0f}B/s"
        values[f"{fit.link}_latency_us"] = round(fit.alpha_s * 1e6, 3)
    if found.links:
        values["links_error"] = _share(max(fit.worst_percent for fit in found.links) / 100)
    measured = {
        "step_us": round(found.step_us, 3),
        "image_us": round(found.image_us, 3),
        "save_us": found.save_us and round(found.save_us, 3),
        "step_ranks": found.ranks,
        "step_spread": found.spread if found.spread is None else _share(found.spread),
    }
    for name, value in measured.items():
        of_models = {**(getattr(before, name) if before else {}), **({} if value is None else {found.model: value})}
        values |= {name: of_models} if of_models else {}
    return (
        "# Written by torusrun calibrate; its values come before those of the site's file. Remove it to drop them.\n"
        + str(yaml.safe_dump(values, sort_keys=False))
    )


def _share(value: float) -> float:
    """Rounded, and no more than a site's file may have: otherwise no verb could read it."""
    return round(min(value, SPREADS.at_most or value), 5)
