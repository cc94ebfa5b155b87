"""YAML text as a tree of nodes that know where they stand, and the tree changed by `--set key.sub=value`."""

from __future__ import annotations

from typing import Any

import yaml

from orchestrator.spec.problems import Mark, Problem, SpecError


def compose(text: str, source: str) -> yaml.Node | None:
    """The tree of `text`, None when it holds nothing. Raises SpecError where it is not YAML."""
    try:
        loader = yaml.SafeLoader(text)
        loader.name = source
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(source, at.line + 1, at.column + 1) if at else Mark(source)
        raise SpecError([Problem(mark, f"this is not YAML: {error.problem or error.context}")]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SpecError([Problem(Mark(source, line, 1), f"this is not YAML: {error.reason}")]) from None
    except RecursionError:
        raise SpecError([Problem(Mark(source), "this is nested too deeply to be a spec")]) from None


def override(root: yaml.Node | None, setting: str, source: str) -> yaml.Node:
    """The tree with the value at `key.sub` replaced or added, as `setting` ('key.sub=value') says."""
    dotted, equals, text = setting.partition("=")
    keys = dotted.split(".")
    if not equals or not all(keys):
        raise SpecError([Problem(Mark(f"--set {setting}"), "write it as key=value or key.sub=value")])
    name = f"--set {setting}"
    value = compose(text, name) or yaml.ScalarNode("tag:yaml.org,2002:null", "", _start(name), _start(name))
    root = _mapping(source) if root is None else root
    place = root
    for key in keys[:-1]:
        place = _entry(place, key, name)
    if isinstance(place, yaml.MappingNode):
        place.value = [(k, v) for k, v in place.value if k.value != keys[-1]]
        place.value.append((_key(keys[-1], name), value))
        return root
    raise SpecError([Problem(Mark(name), f"{'.'.join(keys[:-1])!r} holds no keys to set")])


def _entry(place: yaml.Node, key: str, name: str) -> yaml.Node:
    if not isinstance(place, yaml.MappingNode):
        raise SpecError([Problem(Mark(name), f"there are no keys below {key!r}'s parent to set")])
    for key_node, value_node in place.value:
        if key_node.value == key:
            found: yaml.Node = value_node
            return found
    added = _mapping(name)
    place.value.append((_key(key, name), added))
    return added


def _start(name: str) -> yaml.Mark:
    return yaml.Mark(name, 0, 0, 0, "", 0)


def _key(text: str, name: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, _start(name), _start(name))


def _mapping(name: str) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", [], _start(name), _start(name))


def from_value(value: Any, name: str) -> yaml.Node:
    """The tree that stands for plain values (as JSON gives them), for reading back what torusrun wrote itself."""
    at = _start(name)
    if isinstance(value, dict):
        return yaml.MappingNode("", [(_key(k, name), from_value(v, name)) for k, v in value.items()], at, at)
    if isinstance(value, list):
        return yaml.SequenceNode("", [from_value(v, name) for v in value], at, at)
    if isinstance(value, str):
        return yaml.ScalarNode("", value, at, at, style='"')
    return yaml.ScalarNode("", "" if value is None else str(value), at, at)


def mark_of(node: yaml.Node) -> Mark:
    """Where a node stands; a `--set` has no lines."""
    at = node.start_mark
    return Mark(at.name) if at.name.startswith("--set ") else Mark(at.name, at.line + 1, at.column + 1)


def keys(node: yaml.Node) -> list[str]:
    """The keys of a mapping, none of anything else."""
    return [k.value for k, _ in node.value] if isinstance(node, yaml.MappingNode) else []


def is_null(node: yaml.Node) -> bool:
    """Whether nothing was written as the value."""
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in ("", "null", "~")


def form(node: yaml.Node) -> str:
    """A node in words, for messages."""
    if isinstance(node, yaml.MappingNode):
        return "keys and values"
    return "a list" if isinstance(node, yaml.SequenceNode) else f"the value {node.value!r}"
