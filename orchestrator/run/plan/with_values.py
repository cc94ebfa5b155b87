"""The plan of a run with the values that a study chose for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import yaml

from torusrun.orchestrator.keys.nodes import KeyValue, from_value
from torusrun.orchestrator.keys.read import read_tree
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.run.plan.plan import Plan


def with_values(plan: Plan, values: Mapping[str, str], source: str) -> Plan:
    """The plan with these values by key, which come from `source`. Raises SpecError if one cannot be read."""
    at = yaml.Mark(source, 0, 0, 0, "", 0)
    settings = [KeyValue(key, yaml.ScalarNode("", text, at, at)) for key, text in values.items()]
    run, _ = read_tree(RunSpec, from_value(as_written(plan.run), source), source, settings)
    return replace(plan, run=run, chosen_values=dict(values))
