"""The text of a site's file: its values, each with its source, and the queues above them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import yaml

from torusrun.orchestrator.keys.problems import printable
from torusrun.orchestrator.keys.site import ContainerSettings, Node, Site
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts
from torusrun.orchestrator.sites.clusters import SECTIONS
from torusrun.orchestrator.sites.propose import shown
from torusrun.orchestrator.sites.setting import Setting
from torusrun.training.recipe.key import key_of

WIDTH = 120
COLUMN = 36


def text(title: str, settings: Mapping[str, Setting], facts: ClusterFacts) -> str:
    """The whole file, in the order of the keys of a site."""
    lines = [f"# {printable(title)}", "# The comment beside each value names its source."]
    queues = [queue for queue in facts.queues if queue.name]
    if queues:
        lines.append(f"# Queues, by {facts.commands['queues']}:")
        lines += [printable(f"#   {queue.name:12} {shown(queue)}") for queue in queues]
    for key in _keys(Site):
        if key in SECTIONS:
            lines += _section(key, settings)
        elif key in settings:
            lines.append(_line(key, settings[key]))
    return "\n".join(lines) + "\n"


def _section(name: str, settings: Mapping[str, Setting]) -> list[str]:
    keys = _keys(Node if name == "node" else ContainerSettings)
    held = [(key, settings[f"{name}.{key}"]) for key in keys if f"{name}.{key}" in settings]
    return [f"{name}:", *(_line(f"  {key}", setting) for key, setting in held)] if held else []


def _line(key: str, setting: Setting) -> str:
    return f"{key}: {_value(setting.value)}".ljust(COLUMN - 1) + f" # {printable(setting.comment)}"


def _value(value: Any) -> str:
    written = yaml.safe_dump(value, default_flow_style=True, width=10**9)
    return written.removesuffix("...\n").strip()


def _keys(cls: type[Any]) -> list[str]:
    return [key_of(field) for field in dataclasses.fields(cls)]
