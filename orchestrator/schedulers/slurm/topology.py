"""Reads the switches that Slurm knows: topology.conf, topology.yaml, or the output of `scontrol show topology`.

A line of topology.conf is `SwitchName=s0 Nodes=n[0-3]` or `SwitchName=s9 Switches=s[0-1]`, or names a block or a ring
in place of a switch; scontrol adds Level, LinkSpeed, BlockIndex and others. A file may have comments, and lines that
continue after a backslash (topology.conf(5), Slurm 22.05 and 26.05).

topology.yaml has several topologies; the format is that of topology.yaml(5) in Slurm 26.05.3 [verified], which
`scontrol show topoconf` prints, too. A block, a ring and a torus become leaf switches with their nodes in its order:
the model has no links between single nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod

import yaml

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.nodes import compose, mark_of
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.place.hosts.tree import Tree
from torusrun.orchestrator.schedulers.cluster_facts import Ask
from torusrun.orchestrator.schedulers.traits import SwitchSource

COMMAND = ("scontrol", "show", "topology")
AS_YAML = ("scontrol", "show", "topoconf")
UNITS = ("blockname", "ringname", "torusname")  # each is a leaf switch to the model
IGNORED = ("aggregatedblock", "blocksizes", "placementdims")  # what lines have that name no unit of their own
SOURCE = "Slurm's topology.yaml"
AXES = ("x", "y", "z")
YES = ("true", "yes", "on", "y", "t", "1")
MOST_CELLS = 2**20  # of a torus


def tree(text: str, name: str = "") -> Tree:
    """The switches in `text`, of topology.yaml those of its topology `name`.

    Raises SiteError that names a wrong line, or a switch that is not described. If scontrol lists all nodes below a
    higher switch, they are ignored: `Switches` is enough.
    """
    made = yaml_tree(text, name) if is_yaml(text) else _of_lines(text)
    known = {*made.leaves, *made.parents.values()}
    if missing := [child for child in made.parents if child not in known]:
        raise SiteError(f"Slurm's topology is cut off: it does not describe the switches {', '.join(missing[:5])}")
    if not made.leaves:
        raise SiteError("Slurm's topology has no switches; is there a topology.yaml, or TopologyPlugin=topology/tree?")
    return made


def blocks(ask: Ask) -> int | None:
    """The nodes of the smallest block; None without blocks. Raises SiteError if Slurm reports no switches."""
    text = _query(ask, "")
    smallest = min(map(len, tree(text).leaves.values()))
    return smallest if text.lstrip().startswith("BlockName=") else None


def named(line: str) -> dict[str, str]:
    """The words of the form NAME=VALUE in a line that scontrol printed."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _of_lines(text: str) -> Tree:
    leaves: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    ordered = False
    for line in _lines(text):
        words = {key.lower(): value for key, value in named(line).items()}
        if any(key in words for key in IGNORED):
            continue
        name, nodes, below = (words.get(key) for key in ("switchname", "nodes", "switches"))
        name = name or next((words[key] for key in UNITS if key in words), None)
        ordered = ordered or "ringname" in words
        if not name or not (nodes or below):
            raise SiteError(f"this is not a line of Slurm's topology: {line[:200]!r}")
        if below and below != "(null)":
            parents |= dict.fromkeys(expand(below), name)
        else:
            leaves[name] = expand(nodes or "")
    return Tree(leaves, parents, ordered)


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    lines = (line.partition("#")[0].strip() for line in joined.splitlines())
    return [line for line in lines if line]


def _query(ask: Ask, name: str) -> str:
    """What Slurm prints about a topology, or about the cluster's default for ''.

    Its lines about a torus lack the nodes' coordinates, which its YAML has.
    """
    text = ask([*COMMAND, *([name] if name else [])])
    return ask(AS_YAML) if text.lstrip().startswith("TorusName=") else text


SWITCHES = SwitchSource(tree, _query)


Fields = Mapping[str, yaml.Node]


def is_yaml(text: str) -> bool:
    """Whether this is topology.yaml, and not topology.conf: it is a list."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "").startswith("-")


def yaml_tree(text: str, name: str = "") -> Tree:
    """The topology `name`, or for '' the default of the cluster. Raises SiteError that names the wrong line."""
    try:
        root = compose(text, SOURCE)
    except SpecError as error:
        raise SiteError(str(error)) from None
    if root is None:
        raise SiteError(f"{SOURCE} is empty")
    found = {_text(fields, "topology", root): fields for fields in map(_fields, _items(root))}
    chosen = found.get(name) if name else _default(list(found.values()))
    if chosen is None:
        raise SiteError(f"topology.attribute: {SOURCE} has no topology {name!r}; it has {', '.join(found)}")
    readers = [(read, chosen[kind]) for kind, read in READERS.items() if kind in chosen]
    if len(readers) != 1:
        named, known = _text(chosen, "topology", root), ", ".join(READERS)
        reason = f"has no switches: it is none of {known}; topology.attribute names another"
        raise SiteError(f"{SOURCE}: the topology {named} {reason}")
    ((read, node),) = readers
    made = read(_fields(node))
    if not any(made.leaves.values()):
        raise _wrong(node, "this has no nodes")
    return made


def _default(topologies: Sequence[Fields]) -> Fields | None:
    """The topology of partitions that name none, as Slurm's _cmp_tctx in interfaces/topology.c sorts them."""
    marked = [
        fields for fields in topologies if str(getattr(fields.get("cluster_default"), "value", "")).lower() in YES
    ]
    return next(iter([*marked, *topologies]), None)


def _tree(fields: Fields) -> Tree:
    leaves: dict[str, Sequence[str]] = {}
    parents: dict[str, str] = {}
    for node in _items(_of(fields, "switches")):
        switch = _fields(node)
        name = _text(switch, "switch", node)
        if "children" in switch:
            parents |= dict.fromkeys(expand(_text(switch, "children", node)), name)
        else:
            leaves[name] = expand(_text(switch, "nodes", node))
    return Tree(leaves, parents)


def _units(key: str, name: str) -> Callable[[Fields], dict[str, list[str]]]:
    """Reads a list of units, such as blocks, each with its nodes."""

    def read(fields: Fields) -> dict[str, list[str]]:
        units = [(node, _fields(node)) for node in _items(_of(fields, key))]
        return {_text(unit, name, node): expand(_text(unit, "nodes", node)) for node, unit in units}

    return read


def _toruses(fields: Fields) -> dict[str, list[str]]:
    """The nodes of every torus along a Z-order curve, as Slurm numbers tasks (topology_p_get_rank of torus3d)."""
    found = {}
    for node in _items(_of(fields, "toruses")):
        torus = _fields(node)
        size = _triple(torus, "dims", node)
        parts = [_fields(each) for each in _items(torus["regions"])] if "regions" in torus else [torus]
        cells: dict[tuple[int, ...], str] = {}
        for part in parts:
            anchor = _triple(part, "anchor", node) if "anchor" in part else (0, 0, 0)
            nodes, (x, y, z) = expand(_text(part, "nodes", node)), _triple(part, "dims", node)
            if len(nodes) != x * y * z:
                raise _wrong(node, f"{len(nodes)} nodes do not fill {x}x{y}x{z} places")
            for i, host in enumerate(nodes):
                at = anchor[0] + i % x, anchor[1] + i // x % y, anchor[2] + i // (x * y)
                if at in cells:
                    raise _wrong(node, f"{host} has the place of {cells[at]}: regions overlap")
                cells[at] = host
        if any(place >= most for at in cells for place, most in zip(at, size, strict=True)):
            raise _wrong(node, f"a region goes beyond the torus of {'x'.join(map(str, size))}")
        found[_text(torus, "name", node)] = [cells[at] for at in sorted(cells, key=_along_the_curve)]
    return found


def _along_the_curve(at: Sequence[int]) -> int:
    """The bits of the coordinates in turn, x the lowest (Morton)."""
    return sum((place >> bit & 1) << (3 * bit + axis) for axis, place in enumerate(at) for bit in range(16))


READERS: dict[str, Callable[[Fields], Tree]] = {
    "tree": _tree,
    "block": lambda fields: Tree(_units("blocks", "block")(fields)),
    "ring": lambda fields: Tree(_units("rings", "ring")(fields), ordered=True),
    "torus3d": lambda fields: Tree(_toruses(fields), ordered=True),
}


def _triple(fields: Fields, key: str, near: yaml.Node) -> tuple[int, int, int]:
    """The numbers x, y and z of a key."""
    node = fields.get(key)
    if node is None:
        raise _wrong(near, f"'{key}' is missing")
    inner = _fields(node)
    found = [_text(inner, axis, node) for axis in AXES]
    if not all(text.isascii() and text.isdigit() and len(text) <= 7 for text in found):
        raise _wrong(node, f"'{key}' must have whole numbers x, y and z")
    x, y, z = map(int, found)
    if prod((x, y, z)) > MOST_CELLS:
        raise _wrong(node, f"'{key}' has more than {MOST_CELLS} places")
    return x, y, z


def _items(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise _wrong(node, "this must be a list")
    return list(node.value)


def _fields(node: yaml.Node) -> Fields:
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(node, "this must have keys")
    return {str(key.value): value for key, value in node.value}


def _of(fields: Fields, key: str) -> yaml.Node:
    if key not in fields:
        raise SiteError(f"{SOURCE}: '{key}' is missing in a topology with {', '.join(fields) or 'no keys'}")
    return fields[key]


def _text(fields: Fields, key: str, near: yaml.Node) -> str:
    node = fields.get(key)
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        raise _wrong(node or near, f"'{key}' is missing, or is not one word")
    return str(node.value)


def _wrong(node: yaml.Node, reason: str) -> SiteError:
    return SiteError(f"{mark_of(node)}: {reason}")
