"""YAML text as a tree of nodes with their places; changes the tree by `--set key.sub=value`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError, printable, shown

MOST_VALUES = 100_000  # in a spec; an alias counts each time it is used
MOST_CHARACTERS = 1_000_000  # in all values of a spec
MOST_SHOWN = 200  # characters of a setting in a message
OPTIONS = {
    "--nodes": "nodes", "--gpus": "ranks_per_node", "--ranks-per-node": "ranks_per_node", "--time": "time",
    "--image": "image", "--site": "site", "--queue": "queue", "--account": "account", "--code": "code",
    "--name": "name", "--env": "env", "--qos": "request.qos", "--constraint": "request.constraint",
    "--reservation": "request.reservation", "--mem": "request.memory", "--cpus-per-rank": "request.cpus_per_rank",
}  # fmt: skip # of the command line, each with the key that it sets


def compose(text: str, source: str) -> yaml.Node | None:
    """The tree of `text`, or None if it is empty. Raises SpecError if it is not YAML, or as `checked` does."""
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        loader.name = source
        root: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        raise _not_yaml(_mark(source, at), _tab(text, at) or error.problem or error.context or "") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = Mark(source, before.count("\n") + 1, error.position - before.rfind("\n"))
        raise _not_yaml(mark, error.reason) from None
    except RecursionError:
        raise SpecError([Problem(Mark(source), "this is nested too deeply to be a spec")]) from None
    except (ValueError, OverflowError):  # raised by PyYAML for an escape such as "\\UFFFFFFFF"
        at = loader.get_mark() if loader else None
        raise _not_yaml(_mark(source, at), "there is no character of this number") from None
    return None if root is None else checked(root)


def _not_yaml(mark: Mark, reason: str) -> SpecError:
    return SpecError([Problem(mark, f"this is not YAML: {reason}")])


def _tab(text: str, at: yaml.Mark | None) -> str:
    """The advice about a tab at this mark; '' if there is none."""
    if at is None or text[at.index : at.index + 1] != "\t":
        return ""
    indents = not text[at.index - at.column : at.index].strip()
    return "this line begins with a tab; indent with spaces" if indents else "there is a tab here; write a space"


def _mark(source: str, at: yaml.Mark | None) -> Mark:
    return Mark(source, at.line + 1, at.column + 1) if at else Mark(source)


def checked(root: yaml.Node) -> yaml.Node:
    """The tree unchanged. Raises SpecError if it holds half a character, or if aliases make it too large."""
    stack, values, characters = [root], 0, 0
    while stack:
        node = stack.pop()
        values += 1
        if isinstance(node, yaml.ScalarNode):
            characters += len(node.value)
            if not _is_utf8(node.value):
                problem = f"{shown(node.value)} holds half a character; write all of it"
                raise SpecError([Problem(mark_of(node), problem)])
        elif isinstance(node, yaml.MappingNode):
            stack += [child for pair in node.value for child in pair]
        else:
            stack += node.value
        if values + len(stack) > MOST_VALUES or characters > MOST_CHARACTERS:
            problem = f"this is too large for a spec: more than {MOST_VALUES} values or {MOST_CHARACTERS} characters"
            raise SpecError([Problem(mark_of(node), f"{problem}, every alias counted")])
    return root


@dataclass(frozen=True)
class KeyValue:
    """A value for a dotted key, as a node with its own place in a file or an option."""

    key: str
    node: yaml.Node

    @property
    def text(self) -> str:
        """The value on one line."""
        return printable(as_text(self.node))


def as_text(node: yaml.Node) -> str:
    """A node as YAML in its short form, as in '[1, 2]'."""
    if isinstance(node, yaml.MappingNode):
        return "{" + ", ".join(f"{as_text(key)}: {as_text(value)}" for key, value in node.value) + "}"
    if isinstance(node, yaml.SequenceNode):
        return "[" + ", ".join(map(as_text, node.value)) + "]"
    return str(node.value)


def override(root: yaml.Node | None, setting: str | KeyValue, source: str) -> yaml.Node:
    """The tree with the value at `key.sub` replaced or added, from `setting`.

    A text is 'key.sub=value', as --set has it, or an option of OPTIONS with its value, as '--nodes=4'.
    """
    if isinstance(setting, KeyValue):
        return _put(root, setting.key.split("."), copy.deepcopy(setting.node), setting.node.start_mark, source)
    if setting.partition("=")[0] in OPTIONS:
        return _put_option(root, setting)
    name = f"--set {clipped(setting)}"
    if not _is_utf8(setting):
        raise SpecError([Problem(Mark(name), "this is not UTF-8 text")])
    dotted, equals, text = setting.partition("=")
    keys = dotted.split(".")
    if not equals or not all(keys):
        raise SpecError([Problem(Mark(name), "write it as key=value or key.sub=value")])
    value = compose(text, name) or yaml.ScalarNode("tag:yaml.org,2002:null", "", _start(name), _start(name))
    return _put(root, keys, value, _start(name), source)


def _put_option(root: yaml.Node | None, typed: str) -> yaml.Node:
    """The tree with the value of an option of OPTIONS. The value of a variable may be secret and is not shown."""
    option, _, value = typed.partition("=")
    if option != "--env":
        return from_option(root, OPTIONS[option].split("."), value, f"{option} {value}")
    name, equals, text = value.partition("=")
    if not (name and equals):
        raise SpecError([Problem(Mark(f"--env {clipped(value)}"), "write it as NAME=VALUE")])
    return from_option(root, ["env", name], text, f"--env {name}=...")


def from_option(root: yaml.Node | None, keys: Sequence[str], value: str | Sequence[str], option: str) -> yaml.Node:
    """The tree with the value at `keys`, which was typed with the option `option`, as in '--nodes 4'.

    Text is what a file would have after the colon, but a variable of `env` may be empty; a list has texts.
    Serialized, the tree is such a file.
    """
    name = clipped(option)
    if not _is_utf8(option) or not all(map(_is_utf8, value)):
        raise SpecError([Problem(Mark(name), "this is not UTF-8 text")])
    at = _start(name)
    if isinstance(value, str):
        kind = yaml.SafeLoader("").resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
        node = yaml.ScalarNode(kind, value, at, at)
        if is_null(node) and len(keys) > 1:
            node = yaml.ScalarNode("tag:yaml.org,2002:str", value, at, at, style='"')
        return _put(root, list(keys), node, at, name)
    words = [yaml.ScalarNode("tag:yaml.org,2002:str", word, at, at) for word in value]
    for word in filter(is_null, words):
        word.style = '"'
    listed = yaml.SequenceNode("tag:yaml.org,2002:seq", words, at, at, flow_style=True)
    return _put(root, list(keys), listed, at, name)


def clipped(text: str) -> str:
    """The beginning of a long word of the command line, for the place in a message."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _put(root: yaml.Node | None, keys: list[str], value: yaml.Node, at: yaml.Mark, source: str) -> yaml.Node:
    root = _mapping(_start(source)) if root is None else root
    place = root
    for key in keys[:-1]:
        place = _entry(place, key, at)
    if isinstance(place, yaml.MappingNode):
        place.value = [(k, v) for k, v in place.value if k.value != keys[-1]]
        place.value.append((_key(keys[-1], at), value))
        return root
    raise SpecError([Problem(_place(at), f"{shown('.'.join(keys[:-1]))} holds no keys to set")])


def _entry(place: yaml.Node, key: str, at: yaml.Mark) -> yaml.Node:
    if not isinstance(place, yaml.MappingNode):
        raise SpecError([Problem(_place(at), f"{shown(key)} is not in a group of keys, so it cannot be set")])
    for key_node, value_node in place.value:
        if key_node.value == key:
            existing: yaml.Node = value_node
            return existing
    added = _mapping(at)
    place.value.append((_key(key, at), added))
    return added


def _start(name: str) -> yaml.Mark:
    return yaml.Mark(name, 0, 0, 0, "", 0)


def _key(text: str, at: yaml.Mark) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, at, at)


def _mapping(at: yaml.Mark) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", [], at, at)


def from_value(value: Any, name: str) -> yaml.Node:
    """The tree of plain values (as JSON gives them): reads files that torusrun wrote itself."""
    at = _start(name)
    if isinstance(value, dict):
        return yaml.MappingNode("", [(_key(k, at), from_value(v, name)) for k, v in value.items()], at, at)
    if isinstance(value, list):
        return yaml.SequenceNode("", [from_value(v, name) for v in value], at, at)
    if isinstance(value, str):
        return yaml.ScalarNode("", value, at, at, style='"')
    if isinstance(value, bool):
        return yaml.ScalarNode("", "true" if value else "false", at, at)
    return yaml.ScalarNode("", "" if value is None else str(value), at, at)


def mark_of(node: yaml.Node) -> Mark:
    """The place of a node; an option of the command line has no lines."""
    return _place(node.start_mark)


def _place(at: yaml.Mark) -> Mark:
    return Mark(at.name) if at.name.startswith("--") else Mark(at.name, at.line + 1, at.column + 1)


def keys(node: yaml.Node) -> list[str]:
    """The keys of a mapping; [] for other nodes."""
    return [k.value for k, _ in node.value] if isinstance(node, yaml.MappingNode) else []


def is_null(node: yaml.Node) -> bool:
    """Whether the value is empty or null."""
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in ("", "null", "~")


def form(node: yaml.Node) -> str:
    """A node in words, for messages."""
    if isinstance(node, yaml.MappingNode):
        return "keys and values"
    return "a list" if isinstance(node, yaml.SequenceNode) else f"the value {shown(node.value)}"
