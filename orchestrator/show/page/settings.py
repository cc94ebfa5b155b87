"""The settings of runs: those in their files, those that are not the default, and those in which runs differ.

No secret of `env` is among them, and nothing that looks like one, as what follows --api-key in a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import yaml

from torusrun.orchestrator.keys.roles import Role
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.run.folder.without_secrets import is_secret_variable, masked
from torusrun.orchestrator.show.page.facts import RunFacts

COUNTED_ONLY = ("setup",)  # its lines may set variables
NAMES = ("name", "site")  # the page has them elsewhere, and they have no default
MISSING = "–"
MOST_KEYS = 10_000  # of a run's file
EXACT = re.compile(r"(\d+)(\.\d*?)0+([A-Za-z/]+)")  # a time or a size as it is kept: 600.000000s


def settings(facts: RunFacts) -> list[tuple[str, str]]:
    """(key, value) of all keys that the run's file has or whose value is not the default, in the reference's order."""
    if not facts.plan:
        return []
    usual = dict(_leaves(as_written(RunSpec(name="x", site="x"))))
    usual_role = dict(_leaves(as_written(Role())))
    named = _in_file(facts.spec)

    def is_usual(key: str, text: str) -> bool:
        roles, _, of_role = key.partition(".")
        return text == (usual_role.get(of_role.partition(".")[2]) if roles == "roles" else usual.get(key))

    return [
        (key, facts.shown(text))
        for key, text in _leaves(_written(facts.plan.run))
        if key not in NAMES and (not is_usual(key, text) or key.removesuffix(".name") in named or key in named)
    ]


def _in_file(text: str) -> set[str]:
    """The dotted keys of a run's file; none if it cannot be read."""
    try:
        return {key for key, _ in islice(_leaves(yaml.safe_load(text)), MOST_KEYS)}
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        return set()


def changes(facts: RunFacts) -> list[str]:
    """The run's changes of the published recipe that it names."""
    return [facts.shown(str(change)) for change in facts.plan.recipe_changes] if facts.plan else []


def differing(runs: Sequence[RunFacts]) -> list[tuple[str, list[str]]]:
    """(key, its value in each run) of the keys whose values differ; MISSING where a run has no such key."""
    every = [_all(facts) for facts in runs]
    keys = dict.fromkeys(key for values in every for key in values)
    rows = [(key, [values.get(key, MISSING) for values in every]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _all(facts: RunFacts) -> Mapping[str, str]:
    if not facts.plan:
        return {}
    return {key: facts.shown(text) for key, text in _leaves(_written(facts.plan.run)) if key != "name"}


def _written(run: RunSpec) -> dict[str, Any]:
    """The keys of a run without secrets."""
    written = as_written(run)
    variables = {name: _variable(name, value) for name, value in written["env"].items()}
    shown: dict[str, Any] = {
        key: variables if key == "env" else masked({key: value})[key] for key, value in written.items()
    }
    for name, role in written["roles"].items():
        shown["roles"][name]["environment"] = role["environment"]  # folders, although it is named as variables are
    return shown


def _variable(name: str, value: Any) -> str:
    """The value of a variable; of a secret only what it is."""
    return value if isinstance(value, str) and not is_secret_variable(name) else f"[value of {name}]"


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The dotted key and the text of every value in a document."""
    if key in COUNTED_ONLY:
        value = len(value)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{key}[{number}]")
    else:
        yield key, _word(value)


def _word(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_word, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    exact = EXACT.fullmatch(value) if isinstance(value, str) else None
    return f"{exact[1]}{exact[2].rstrip('.')}{exact[3]}" if exact else "none" if value is None else str(value)
