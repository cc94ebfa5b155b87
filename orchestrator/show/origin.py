"""Where a run comes from, in one screen: code, image, versions, hosts, settings and forecast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.run.folder import index, provenance
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.account import forecast_line
from torusrun.orchestrator.show.comparison import Comparison, compare
from torusrun.orchestrator.show.page.facts import RunFacts, environment, overview, records
from torusrun.orchestrator.show.page.settings import changes, settings
from torusrun.training.counted import counted

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
        facts, view = self.facts, self.facts.view
        found = {
            "schema": SCHEMA,
            "run": view.run,
            "state": view.state.value,
            "folder": view.folder,
            "grid": list(view.grid) if view.grid else None,
            "hosts": list(view.hosts),
            "provenance": dict(facts.provenance),
            "diff": str(self.run.code_diff) if facts.has_diff else None,
            "code": {key: value for key, value in self.code.items() if key != "names"} or None,
            "image": asdict(replace(facts.image, definition="")) if facts.image else None,
            "environment": dict(environment(facts)),
            "settings": dict(settings(facts)),
            "recipe_changes": changes(facts),
            "forecast": asdict(facts.account.forecast) if facts.account and facts.account.forecast else None,
            "took_s": facts.account.productive_s if facts.account else None,
            "reproduces": self.original or None,
            "compared": self.compared.as_json() if self.compared else None,
        }
        return {key: self._shown(value) for key, value in found.items()}

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
    """The run beside the one that it repeats; None if that one is gone, or unreadable."""
    try:
        return compare(index.find(original), run)
    except (UserError, SiteError):
        return None
