"""Short forms, as `model: resnet-digits` for `model: {name: resnet-digits}`, and hints for messages.

Hints are the place of a moved key, and how to write a list (`command: python x.py` as `[python, x.py]`) or a group.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import types
import typing
from functools import cache
from typing import Any, TypeVar, get_args

import yaml

from torusrun.orchestrator.keys.kinds import ARGUMENT, SHELL, Kind
from torusrun.orchestrator.keys.nodes import is_null
from torusrun.training.recipe.key import described, key_of, may_be_left_out
from torusrun.training.recipe.near import did_you_mean

NAME = "name"
Root = TypeVar("Root", yaml.Node, "yaml.Node | None")
OF_A_SHELL = re.compile(r"[$`|&;<>*?~]")  # special characters of a shell
MOST_TEXT = 1000  # longest text that a message shows as a list

GROUPS = {
    "keep_going": "{attempts: 3}",
    "notify": "{mail: me@example.org}",
    "train": "{model: resnet-digits, epochs: 2}",
    "stop": "{signal: SIGUSR1, before: 5m}",
    "checkpoints": "{folder: checkpoints}",
    "exit_codes": "{later: [75]}",
    "metrics": "{pattern: 'step=(?P<step>\\d+)'}",
    "sweep": "{train.batch: [64, 128]}",
    "environment": "{venv: ~/venv}",
    "env": "{NAME: value}",
    "request": "{qos: long, memory: 200G}",
    "most": "{memory: 500GiB}",
    "node": "{ranks: 4, gpus: 4}",
    "container": "{runtime: apptainer}",
    "topology": "{source: slurm}",
    "preflight": "{enabled: false}",
    "measured": "{models: {resnet50: {image_us: 85}}}",
    "base": "{docker: debian:bookworm}",
    "python": "{packages: [numpy==2.1.0]}",
    "mpi": "{from: distribution}",
}


def with_names(cls: type[Any], root: Root) -> Root:
    """The tree of a `cls` with every short form written out. Other uses of an aliased node stay unchanged."""
    return _written_out(cls, root) if isinstance(root, yaml.MappingNode) else root


def short_key(cls: type[Any]) -> str | None:
    """The key of a `cls` whose value may be written alone: `name`, or a key declared `short`, if no key is required."""
    fields = dataclasses.fields(cls)
    if not all(map(may_be_left_out, fields)):
        return None
    return next((key_of(field) for field in fields if key_of(field) == NAME or field.metadata.get("short")), None)


def item_may_stand_alone(items: tuple[Any, ...]) -> bool:
    """Whether `3` may be written for `[3]`, for the type `tuple[*items]`: only for number lists of any length."""
    item = typing.get_args(items[0])[0] if typing.get_args(items[0]) else items[0]
    return items[-1] is ... and item in (int, float)


GONE = {
    "PhaseKeys.nodes": "`torusrun resume RUN --nodes N` continues a run on other nodes",
    "Notify.webhook": "write a command that posts, as in docs/guides/notices.md",
    "Train.mlperf_log": "metrics.jsonl has evaluations and epochs with their times",
}


def near_key(key: str, cls: type[Any]) -> str:
    """'; did you mean X?' for a key that `cls` does not have; X may be a key of its sections."""
    if instead := GONE.get(f"{cls.__name__}.{key}"):
        return f": {instead}"
    if meant := [field for field in dataclasses.fields(cls) if key in field.metadata.get("mistaken", ())]:
        return f"; write {key_of(meant[0])!r} ({described(meant[0])})"
    sections = _sections(cls)  # type: ignore[arg-type]
    inner = {f"{section}.{key}" for section, held in sections.items() if key in _keys(held)}
    return f"; did you mean {' or '.join(map(repr, sorted(inner)))}?" if inner else did_you_mean(key, _keys(cls))


def _keys(cls: type[Any]) -> list[str]:
    return [key_of(field) for field in dataclasses.fields(cls)]


def _written_out(cls: type[Any], node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode) and not is_null(node) and (short := short_key(cls)):
        at = node.start_mark, node.end_mark
        key = yaml.ScalarNode("tag:yaml.org,2002:str", short, *at)
        return yaml.MappingNode("tag:yaml.org,2002:map", [(key, node)], *at)
    if not isinstance(node, yaml.MappingNode):
        return node
    sections = _sections(cls)  # type: ignore[arg-type]
    pairs = [(k, _written_out(sections[k.value], v) if _is_in(k, sections) else v) for k, v in node.value]
    return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)


def _is_in(key: yaml.Node, sections: dict[str, type[Any]]) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value in sections


@cache
def _sections(cls: Any) -> dict[str, type[Any]]:
    """The keys of `cls` that hold sections, with the classes of these."""
    hints = typing.get_type_hints(cls)
    held = {key_of(field): _optional(hints[field.name]) for field in dataclasses.fields(cls)}
    return {key: kind for key, kind in held.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}


def _optional(hint: Any) -> Any:
    """`X` for the type `X | None`."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) in (types.UnionType, typing.Union) else hint


def as_group(path: str) -> str:
    """', as in KEY: {...}' for the dotted key of a group, if it has an example."""
    name = path.rpartition(".")[2]
    return f", as in {name}: {GROUPS[name]}" if name in GROUPS else ""


def as_list(item: Any, node: yaml.Node) -> str:
    """'; write [python, x.py]' for a text that should be a list, if the list is certain."""
    kind = next((extra for extra in get_args(item)[1:] if isinstance(extra, Kind)), None)
    if kind is None or not isinstance(node, yaml.ScalarNode) or len(node.value) > MOST_TEXT:
        return ""
    try:
        words = shlex.split(node.value)
    except ValueError:  # a quote is not closed
        return ""
    if kind is ARGUMENT:
        items = ["sh", "-c", node.value] if OF_A_SHELL.search(node.value) else words
    else:
        items = [node.value] if len(words) == 1 or kind is SHELL else []
    return f"; write {yaml.safe_dump(items, default_flow_style=True, width=10 * MOST_TEXT).strip()}" if items else ""
