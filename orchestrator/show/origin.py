"""Where a run comes from, in one screen; and two runs compared: their numbers, and the weights of a checkpoint."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.folder import index, ledger, metrics, provenance
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.listing import forecast_line
from torusrun.orchestrator.show.page.facts import RunFacts, environment, overview, records
from torusrun.orchestrator.show.page.settings import changes, settings
from torusrun.training.checkpoint.manifest import IncompleteCheckpoint, candidates, verify
from torusrun.training.counted import counted

COMPARED = ("loss", "test_loss", "accuracy", "top5")

Numbers = Mapping[tuple[int, str], float | None]  # by step and name; None for a number that is not finite


@dataclass(frozen=True)
class Difference:
    """Two values of a number at one step. `relative` is by the larger of them; None if either is not finite."""

    step: int
    name: str
    values: tuple[float | None, float | None]
    relative: float | None


@dataclass(frozen=True)
class Comparison:
    """Two runs, compared with each other.

    `steps` and `numbers` count those that both recorded, `names` are their names. `first` and `largest` are the first
    and the largest difference; None without one. `checkpoint` is the newest that both have, '' for none, and
    `same_weights` whether its checksums are equal. `grids` are those of their last attempts, () if unknown.
    """

    runs: tuple[str, str]
    steps: int
    numbers: int
    names: tuple[str, ...]
    first: Difference | None
    largest: Difference | None
    checkpoint: str
    same_weights: bool | None
    grids: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def identical(self) -> bool:
        """Whether all that can be compared is equal, and the weights are among it."""
        return not self.first and bool(self.same_weights)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "identical": self.identical}

    @property
    def words(self) -> str:
        if not self.numbers and not self.checkpoint:
            return "nothing can be compared: they have no step and no checkpoint in common"
        parts = [self._numbers, self._weights, self._why]
        return f"{'bit-identical: ' if self.identical else ''}{', '.join(filter(None, parts))}"

    @property
    def _numbers(self) -> str:
        if not self.numbers:
            return "no step in common"
        names = [", ".join(self.names[:-1]), self.names[-1]] if self.names[1:] else self.names
        named = f"{' and '.join(names)} at {counted(self.steps, 'common step')}"
        if not (self.first and self.largest):
            return f"equal {named}"
        by = "one is not finite" if self.largest.relative is None else f"by {self.largest.relative:.2g}"
        most = f"most at step {self.largest.step} ({self.largest.name}, {by})"
        return f"{named} differ from step {self.first.step} on, {most}"

    @property
    def _weights(self) -> str:
        if not self.checkpoint:
            return "no checkpoint in common"
        return f"{'equal' if self.same_weights else 'other'} weights in {self.checkpoint}, by SHA-256"

    @property
    def _why(self) -> str:
        mine, theirs = self.grids
        if self.identical or mine == theirs or not (mine and theirs):
            return ""
        return f"on other grids ({Grid(mine)} and {Grid(theirs)}), which sum in another order"


def compare(run: RunFolder, other: RunFolder) -> Comparison:
    """Compare two runs by their records. Raises SiteError if their metrics cannot be read."""
    mine, theirs = _numbers(run), _numbers(other)
    common = sorted(mine.keys() & theirs.keys())
    differing = [_difference(key, mine[key], theirs[key]) for key in common if mine[key] != theirs[key]]
    largest = max(differing, key=lambda pair: math.inf if pair.relative is None else pair.relative, default=None)
    checkpoint, same = _checkpoint(run, other)
    return Comparison(
        (run.run_id, other.run_id),
        len({step for step, _ in common}),
        len(common),
        tuple(name for name in COMPARED if any(name == recorded for _, recorded in common)),
        next(iter(differing), None),
        largest,
        checkpoint,
        same,
        (_grid(run), _grid(other)),
    )


def _numbers(run: RunFolder) -> Numbers:
    """The recorded numbers of a run. Of a step that a later attempt repeated, the newer ones count."""
    rows = [row for row in metrics.rows(run.metrics) if type(row.get("step")) is int]
    return {(row["step"], name): row[name] for row in rows for name in COMPARED if name in row}


def _difference(key: tuple[int, str], mine: float | None, theirs: float | None) -> Difference:
    relative = None
    if mine is not None and theirs is not None:
        relative = abs(mine - theirs) / max(abs(mine), abs(theirs))
    return Difference(*key, (mine, theirs), relative)


def _checkpoint(run: RunFolder, other: RunFolder) -> tuple[str, bool | None]:
    """(the newest checkpoint that both have, whether its files have the same checksums), by their manifests."""
    for path in candidates(run.checkpoints):
        try:
            manifests = verify(path, contents=False), verify(other.checkpoints / path.name, contents=False)
        except IncompleteCheckpoint:
            continue
        return path.name, manifests[0].sha256 == manifests[1].sha256
    return "", None


def _grid(run: RunFolder) -> tuple[int, ...]:
    """The grid of its newest attempt that began; () if there is none."""
    begun = [event.grid for event in ledger.events(run.ledger) if isinstance(event, Started)]
    return tuple(begun[-1] or ()) if begun else ()


SCHEMA = 1


@dataclass(frozen=True)
class RunOrigin:
    """The facts of a run's records. `code` is the record of its copied code, {} without one.

    `original` is the id of the run that it repeats, '' for none, and `compared` the two beside each other; None while
    it is not over, or if the original is gone.
    """

    run: RunFolder
    facts: RunFacts
    code: dict[str, Any]
    original: str = ""
    compared: Comparison | None = None

    def rows(self) -> list[tuple[str, str]]:
        """(what, value) of all that is known, in the order of display."""
        return [(name, text) for name, text in self._rows() if text]

    def _rows(self) -> Iterator[tuple[str, str]]:
        facts, view = self.facts, self.facts.view
        yield "run", view.run
        yield "state", facts.shown(f"{view.state.value}: {view.reason}" if view.reason else view.state.value)
        yield "reproduces", self._original
        for name, text in overview(facts):
            yield name, facts.shown(text)
        for name, text in environment(facts):
            yield name, text
            if name == "code":
                yield "changes", str(self.run.code_diff) if facts.has_diff else ""
                yield "copied code", facts.shown(self._copied)
        yield "forecast", forecast_line(facts.account) if facts.account else ""
        yield from ((f"  {key}", text) for key, text in settings(facts))
        yield from (("recipe", text) for text in changes(facts))

    def as_json(self) -> dict[str, Any]:
        """All that is known, for programs. No secret of `env` is in it."""
        facts, view, image = self.facts, self.facts.view, self.facts.images.get("")
        record = {
            "schema": SCHEMA,
            "run": view.run,
            "state": view.state.value,
            "folder": view.folder,
            "grid": list(view.grid) if view.grid else None,
            "hosts": list(view.hosts),
            "provenance": dict(facts.provenance),
            "diff": str(self.run.code_diff) if facts.has_diff else None,
            "code": {key: value for key, value in self.code.items() if key != "names"} or None,
            "image": asdict(replace(image, definition="")) if image else None,
            "environment": dict(environment(facts)),
            "settings": dict(settings(facts)),
            "recipe_changes": changes(facts),
            "forecast": asdict(facts.account.forecast) if facts.account and facts.account.forecast else None,
            "took_s": facts.account.productive_s if facts.account else None,
            "reproduces": self.original or None,
            "compared": self.compared.as_json() if self.compared else None,
            **({"roles": [role.as_json() for role in facts.roles]} if facts.roles else {}),
        }
        return {key: self._shown(value) for key, value in record.items()}

    def _shown(self, value: Any) -> Any:
        """A value whose texts are without secrets."""
        if isinstance(value, str):
            return self.facts.shown(value)
        if isinstance(value, (list, tuple)):
            return [self._shown(item) for item in value]
        return {key: self._shown(item) for key, item in value.items()} if isinstance(value, dict) else value

    @property
    def _original(self) -> str:
        if not self.original:
            return ""
        if self.compared:
            return f"{self.original}: {self.compared.words}"
        over = self.facts.view.state.over
        return f"{self.original}{', which is gone' if over else ': compared once this run is over'}"

    @property
    def _copied(self) -> str:
        files, taken, checksum = (self.code.get(key) for key in ("files", "bytes", "sha256"))
        if type(files) is not int or type(taken) is not int:
            return ""
        return f"{self.run.code}, {counted(files, 'file')}, {size(taken)}, SHA-256 {checksum}"


def origin(run: RunFolder, view: View) -> RunOrigin:
    """Where a run with this view comes from. Records that are missing or damaged are left out."""
    facts, code = records(run, view), dict[str, Any]()
    with contextlib.suppress(SiteError):
        code = read_object(run.code_record) or {}
    original = facts.provenance.get(provenance.REPRODUCES)
    original = original if isinstance(original, str) else ""
    return RunOrigin(run, facts, code, original, _compared(run, original) if original and view.state.over else None)


def _compared(run: RunFolder, original: str) -> Comparison | None:
    """The run beside its original; None if the original is gone, or unreadable."""
    try:
        return compare(index.find(original), run)
    except (UserError, SiteError):
        return None
