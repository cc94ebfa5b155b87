"""The strict reader of JSON: what becomes a dataclass, and what is refused in words."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.typed import kept_record, read_record, record_of
from torusrun.training.recipe.key import Limits


@dataclass(frozen=True)
class Part:
    name: str
    share: Annotated[float, Limits(at_least=0)] | None = None


@dataclass(frozen=True)
class Whole:
    number: int
    at_s: float = 0.0
    sure: bool = True
    parts: tuple[Part, ...] = ()
    pair: tuple[int, str] = (1, "a")
    labels: dict[str, str] | None = None


WHOLE = Whole(3, 12.5, False, (Part("a", 0.5), Part("b")), (7, "x"), {"k": "v"})


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert read_record(path, Whole) is None
    path.write_text(json.dumps({"schema": 1, **asdict(WHOLE)}))
    assert read_record(path, Whole) == WHOLE
    assert kept_record(path, Whole, {**asdict(WHOLE), "parts": [], "pair": [1, "a"]}, number=9).number == 9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": 1.5}, "'number' is of type float, not int"), ({"number": True}, "'number' is of type bool"),
        ({"number": 10**18}, "'number' is 1000000000000000000, which is "
        "not a possible value"), ({"at_s": 1e12}, "'at_s' is 1"),
        ({"at_s": float("nan")}, "'at_s' is nan"), ({"sure": 1}, "'sure' is of type int, not bool"),
        ({"parts": {}}, "'parts' is of type dict, not list"), ({"parts": [{}]}, "'parts[0].name' is missing"),
        ({"parts": [{"name": "b"}, {"name": "a", "share": -1}]}, "'parts[1].share' must be at least 0"),
        ({"pair": [1]}, "'pair' has 1 entries"),
        ({"labels": {"a": 1}}, "'labels' is of type int, not str"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_another_kind_is_damage(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**asdict(WHOLE), **change}))
    with pytest.raises(SiteError, match=re.escape(f"record.json: this is damaged: {why}")):
        read_record(path, Whole)


def test_a_file_must_have_every_field_and_a_message_those_without_a_default(tmp_path: Path) -> None:
    assert record_of(Whole, {"number": 1, "unknown": 2}) == Whole(1)
    assert record_of(Part, {"name": "a\nb"}) == Part("a / b")
    (tmp_path / "part.json").write_text('{"name": "a"}')
    with pytest.raises(SiteError, match="'share' is missing"):
        read_record(tmp_path / "part.json", Part)
