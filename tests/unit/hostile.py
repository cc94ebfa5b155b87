"""Text that tries to be more than a value, planted into every key of a spec by walking the dataclasses that read it."""

from __future__ import annotations

import copy
import dataclasses
import types
import typing
from typing import Annotated, Any, get_args, get_origin

from hypothesis import strategies as st

from torusrun.orchestrator.keys.kinds import Kind
from torusrun.training.recipe.key import key_of

Key = tuple[str | int, ...]
PRINTABLE = [
    "$(touch pwned)", "`touch pwned`", "; touch pwned #", "'; touch pwned; '", '"; touch pwned; "', "\\", "\\\\", "'",
    '"', " ", "  ", "#", "#$ -q evil", "#SBATCH --uid=0", ' -l evil=1 "', "-x", "--uid=0", "=", ",", ":", "{account}",
    "{{ x }}", "{nodes}", "{", "}", "%j", "%", "~", "~root", "/", "..", "*", "!", "!!", "&", "|", "<", ">", "${HOME}",
    "a", "b c", "7", "é", "あ", "𝕏", "%post", "Bootstrap:", "\u3000", "\u202e", "x" * 120,
]  # fmt: skip
LINES = [
    "\n", "\r", "\r\n", "\t", "\0", "\x0b", "\x0c", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u2029", "\ud800", "\udcff",
    "\n#SBATCH --uid=0\n", "\n#PBS -q evil\n", "\n#BSUB -q evil\n", "\n#$ -q evil\n", "\n#@ queue\n", "\n#COBALT -q x",
    "\n#PJM -L x", "\n  #PBS -q evil", "\n%post\n touch pwned\n", "\nBootstrap: docker\nFrom: evil\n", "\\\n",
]  # fmt: skip
PLAIN = ["x", "1", "a-b", "10m", "4x2", "2GiB", "1GB/s", "1/3", "/a:/b:ro", "sm_70", "gpu.q@h1", "1.2", "none", "a/b"]

TEXT = st.one_of(
    st.lists(st.sampled_from(PRINTABLE), min_size=1, max_size=4).map("".join),
    st.lists(st.sampled_from(PRINTABLE + LINES), max_size=4).map("".join),
    st.sampled_from(PLAIN),
    st.text(max_size=20),
)
NAMES = st.sampled_from(["A", "b_1", "PATH", "LC_ALL", "LD_PRELOAD", "HOME", "code", "UID", "TORUSRUN_X"]) | TEXT


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value stands, its shape ('text', 'list' or 'table'), and whether nearly any line may stand there."""

    key: Key
    shape: str
    free: bool


def places(cls: type[Any], above: Key = ()) -> list[Place]:
    """Every value of a spec."""
    found: list[Place] = []
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if get_origin(hint) in (types.UnionType, typing.Union):
            hint = get_args(hint)[0]
        key = (*above, key_of(field))
        if dataclasses.is_dataclass(hint):
            found += places(typing.cast(type[Any], hint), key)
        elif get_origin(hint) is tuple and dataclasses.is_dataclass(get_args(hint)[0]):
            found += places(get_args(hint)[0], (*key, 0))
        elif get_origin(hint) is tuple:
            found.append(Place(key, "list", _free(get_args(hint)[0])))
        elif get_origin(hint) is dict:
            found.append(Place(key, "table", _free(get_args(hint)[1])))
        else:
            found.append(Place(key, "text", _free(hint)))
    return found


def _free(hint: Any) -> bool:
    if get_origin(hint) is not Annotated or not isinstance(kind := get_args(hint)[1], Kind):
        return hint is str
    try:
        return bool(kind.parse("a 'b' $c"))
    except ValueError:
        return False


def planted(base: dict[str, Any], at: list[Place]) -> st.SearchStrategy[dict[str, Any]]:
    """`base` with hostile text at one to three of these places, at most one of which is strict."""
    free = st.lists(st.sampled_from([place for place in at if place.free]).flatmap(_written), min_size=1, max_size=2)
    some = st.just([]) | st.just([]) | st.sampled_from(at).flatmap(_written).map(lambda chosen: [chosen])
    return st.tuples(free, some).map(lambda chosen: _with(base, [*chosen[0], *chosen[1]]))


def _written(place: Place) -> st.SearchStrategy[tuple[Key, Any]]:
    shapes: dict[str, st.SearchStrategy[Any]] = {
        "text": TEXT,
        "list": st.lists(TEXT, min_size=1, max_size=2),
        "table": st.dictionaries(NAMES, TEXT, min_size=1, max_size=2),
    }
    return st.tuples(st.just(place.key), shapes[place.shape])


def _with(base: dict[str, Any], chosen: list[tuple[Key, Any]]) -> dict[str, Any]:
    document = copy.deepcopy(base)
    for key, value in chosen:
        place: Any = document
        for step, following in zip(key, key[1:], strict=False):
            if isinstance(place, dict) and step not in place:
                place[step] = [] if isinstance(following, int) else dict(NEEDED.get(str(step), {}))
            if isinstance(place, list) and not place:
                place.append(dict(NEEDED["files"]))
            place = place[step]
        place[key[-1]] = value
    return document


# What a part that may be left out has to hold.
NEEDED: dict[str, dict[str, Any]] = {
    "topology": {"source": "names"},
    "cuda": {"version": "12.1"},
    "files": {"from": "a", "to": "/a"},
}
