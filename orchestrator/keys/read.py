"""Reads YAML into frozen dataclasses, strictly: an unknown key, a wrong kind or a bad unit is a Problem with its place.

PyYAML's composer is used without its constructor: values are taken as written and read by the type of their field, so
that `grid: 4:2`, `on` or `0777` are never converted to another value.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml

from torusrun.orchestrator.base.typed import hints_of
from torusrun.orchestrator.keys.kinds import Kind, decimal, whole
from torusrun.orchestrator.keys.names import as_group, as_list, item_may_stand_alone, near_key, with_names
from torusrun.orchestrator.keys.nodes import KeyValue, checked, compose, form, from_value, is_null, mark_of, override
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError, shown
from torusrun.training.recipe.key import Constraint, Limits, key_of, may_be_left_out
from torusrun.training.recipe.names import Names
from torusrun.training.recipe.near import did_you_mean

T = TypeVar("T")
Marks = Mapping[str, Mark]
MISSING: Any = object()


def read(cls: type[T], text: str, source: str, settings: Sequence[str | KeyValue] = ()) -> tuple[T, Marks]:
    """Read `text` as a `cls`; also return the place of each dotted key.

    `settings` are `key.sub=value` words, or values with their places, that replace values of the text. Raises SpecError
    with every mistake.
    """
    return read_tree(cls, compose(text, source), source, settings)


def read_tree(
    cls: type[T], root: yaml.Node | None, source: str, settings: Sequence[str | KeyValue] = ()
) -> tuple[T, Marks]:
    """Read a tree as `read` reads a text. The tree is changed."""
    root = overridden(cls, root, source, settings)
    reader = _Reader()
    value = reader.record(cls, root, "") if root else reader.build(cls, {}, Mark(source), "")
    if reader.problems:
        raise SpecError(reader.problems)
    return value, reader.marks


def overridden(
    cls: type[T], root: yaml.Node | None, source: str, settings: Sequence[str | KeyValue]
) -> yaml.Node | None:
    """The tree of a `cls` with the values of `settings` in place of its own."""
    root = with_names(cls, root)
    for setting in settings:
        root = with_names(cls, override(root, setting, source))
    return root


def read_value(cls: type[T], value: Any, source: str) -> T:
    """Read plain values as a `cls`: the inverse of `write.as_written`. Raises SpecError with every mistake."""
    reader = _Reader()
    record = reader.record(cls, with_names(cls, checked(from_value(value, source))), "")
    if reader.problems:
        raise SpecError(reader.problems)
    return record


class _Reader:
    """Walks nodes and types together, and collects problems and marks."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.marks: dict[str, Mark] = {}

    def wrong(self, node: yaml.Node, message: str) -> Any:
        self.problems.append(Problem(mark_of(node), message))
        return MISSING

    def record(self, cls: type[T], node: yaml.Node, path: str) -> T:
        """A mapping as a dataclass; `path` is its dotted key, '' at the top."""
        if not isinstance(node, yaml.MappingNode):
            return self.wrong(node, f"{path or 'a spec'} must be keys and values{as_group(path)}, not {form(node)}")  # type: ignore[no-any-return]
        fields = {key_of(f): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        others = next((f for f in dataclasses.fields(cls) if f.metadata.get("others")), None)  # type: ignore[arg-type]
        hints = hints_of(cls)
        values: dict[str, Any] = {}
        for key_node, value_node in self._pairs(node):
            if others and key_node.value not in fields:
                values.setdefault(others.name, {}).update(self._other(hints[others.name], key_node, value_node, path))
                continue
            if (key := key_node.value) not in fields:
                where = f"in {path!r}" if path else "here"
                valid = ", ".join(fields)
                self.wrong(key_node, f"unknown key {shown(key)}{near_key(key, cls)} (valid {where}: {valid})")
                continue
            dotted = f"{path}.{key}" if path else key
            self.marks[dotted] = mark_of(value_node)
            values[fields[key].name] = self.value(hints[fields[key].name], value_node, dotted)
        return self.build(cls, values, mark_of(node), path)

    def _other(self, hint: Any, key: yaml.ScalarNode, value: yaml.Node, path: str) -> dict[str, Any]:
        """A key that its section does not declare, with its value; `hint` is a dict."""
        of_key, of_value = get_args(hint)
        return {self.value(of_key, key, f"{path} key"): self.value(of_value, value, f"{path}.{key.value}")}

    def build(self, cls: type[T], values: dict[str, Any], mark: Mark, path: str) -> T:
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            if field.name not in values and not may_be_left_out(field):
                name = f"{path}.{key_of(field)}" if path else key_of(field)
                why = field.metadata.get("help", "it is required")
                self.problems.append(Problem(mark, f"{name!r} is missing: {why}"))
        if self.problems:
            return MISSING  # type: ignore[no-any-return]
        return cls(**values)

    def _pairs(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.wrong(key_node, f"a key must be a word, not {form(key_node)}")
            elif (key := key_node.value) in lines:
                self.wrong(key_node, f"{shown(key)} is given twice (first on line {lines[key]}); keep one")
            else:
                lines[key] = mark_of(key_node).line
                yield key_node, value_node

    def value(self, hint: Any, node: yaml.Node, path: str) -> Any:
        """A node as the type `hint`, or MISSING after its problem has been noted."""
        if hint is yaml.Node:
            return node
        origin, args = get_origin(hint), get_args(hint)
        if origin in (types.UnionType, typing.Union) and type(None) in args:  # only `X | None` is used
            return None if is_null(node) else self.value(args[0], node, path)
        if is_null(node):
            return self.wrong(node, f"{shown(path)} has no value; give it one or leave the key out")
        if origin is Annotated:
            return self._annotated(args[0], args[1], node, path)
        if origin is Literal:
            return self._choice(args, node, path)
        if origin is tuple:
            return self._sequence(args, node, path)
        if origin is dict:
            return self._table(args, node, path)
        if dataclasses.is_dataclass(hint):
            return self.record(hint, node, path)  # type: ignore[arg-type]
        if origin in (types.UnionType, typing.Union):
            return self._any_of(args, node, path)
        return self._scalar(hint, node, path)

    def _annotated(self, base: Any, extra: Any, node: yaml.Node, path: str) -> Any:
        if not isinstance(extra, Kind):
            return self._constrained(base, extra, node, path)
        if not isinstance(node, yaml.ScalarNode):
            return self.wrong(node, f"{shown(path)} must be {extra.means}, not {form(node)}")
        try:
            return extra.parse(node.value)
        except ValueError as error:
            return self.wrong(node, f"{shown(path)}: {shown(node.value)} {error}")

    def _constrained(self, base: Any, constraint: Constraint, node: yaml.Node, path: str) -> Any:
        value = self.value(base, node, path)
        complaint = None if value is MISSING else constraint.complaint(value)
        if not complaint:
            return value
        if not isinstance(node, yaml.ScalarNode):
            return self.wrong(node, f"{shown(path)} {complaint}, not {len(value)}")
        given = node.value if isinstance(constraint, Limits) else shown(node.value)
        hint = did_you_mean(node.value, constraint.known) if isinstance(constraint, Names) else ""
        return self.wrong(node, f"{shown(path)} {complaint}, not {given}{hint}")

    def _any_of(self, kinds: tuple[Any, ...], node: yaml.Node, path: str) -> Any:
        """The first of these types that the text can be read as; quoted text is always text."""
        if records := [kind for kind in kinds if dataclasses.is_dataclass(kind)]:  # of text, or a record
            return self.value(records[0] if isinstance(node, yaml.MappingNode) else kinds[0], node, path)
        lists = [kind for kind in kinds if get_origin(kind) is tuple]
        if lists and isinstance(node, yaml.SequenceNode):
            return self._sequence(get_args(lists[0]), node, path)
        if isinstance(node, yaml.ScalarNode):
            for kind in (bool, int, float) if node.style not in ("'", '"') else ():
                try:
                    if kind in kinds:
                        return _PARSERS[kind](node.value)
                except ValueError:
                    continue
            if str in kinds:
                return node.value
        wanted = " or ".join([*(_NAMES[kind] for kind in kinds if kind in _NAMES), *(["a list"] if lists else [])])
        return self.wrong(node, f"{shown(path)} must be {wanted}, not {form(node)}")

    def _choice(self, choices: tuple[str, ...], node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.ScalarNode) and node.value in choices:
            return node.value
        given = node.value if isinstance(node, yaml.ScalarNode) else form(node)
        hint = did_you_mean(given, choices)
        return self.wrong(node, f"{shown(path)} must be one of {', '.join(choices)}, not {shown(given)}{hint}")

    def _sequence(self, args: tuple[Any, ...], node: yaml.Node, path: str) -> Any:
        """A list of any length if `args` ends with an ellipsis, otherwise of as many items as `args`.

        A number may stand for a list of one number.
        """
        if isinstance(node, yaml.ScalarNode) and item_may_stand_alone(args):
            return (self.value(args[0], node, path),)
        if not isinstance(node, yaml.SequenceNode):
            return self.wrong(node, f"{shown(path)} must be a list, not {form(node)}{as_list(args[0], node)}")
        if args[-1] is not ... and len(node.value) != len(args):
            return self.wrong(node, f"{shown(path)} must have {len(args)} values, not {len(node.value)}")
        return tuple(self._item(args[0], n, f"{path}[{i}]") for i, n in enumerate(node.value))

    def _item(self, hint: Any, node: yaml.Node, path: str) -> Any:
        self.marks[path] = mark_of(node)
        return self.value(hint, node, path)

    def _table(self, args: tuple[Any, ...], node: yaml.Node, path: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self.wrong(node, f"{path!r} must be keys and values{as_group(path)}, not {form(node)}")
        table = {}
        for key_node, value_node in self._pairs(node):
            name = self.value(args[0], key_node, f"{path} key")
            table[name] = self._item(args[1], value_node, f"{path}.{key_node.value}")
        return table

    def _scalar(self, kind: type, node: yaml.Node, path: str) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self.wrong(node, f"{shown(path)} must be {_NAMES[kind]}, not {form(node)}")
        if kind is str:
            return node.value
        if node.style in ("'", '"'):
            return self.wrong(node, f"{shown(path)} must be {_NAMES[kind]}, not text in quotes ({shown(node.value)})")
        try:
            return _PARSERS[kind](node.value)
        except ValueError:
            return self.wrong(node, f"{shown(path)} must be {_NAMES[kind]}, not {shown(node.value)}")


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_NAMES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_PARSERS: dict[type, Any] = {int: whole, float: decimal, bool: _boolean}
