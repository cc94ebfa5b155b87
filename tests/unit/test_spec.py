"""Specs read, overridden, written back, and described by their schema."""

import contextlib
import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.verbs import Patch
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.image_file import ImageFile
from torusrun.orchestrator.keys.kinds import GRID, bytes_, grid, seconds
from torusrun.orchestrator.keys.names import GROUPS
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.keys.read import read, read_value
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Node, Site
from torusrun.orchestrator.keys.write import as_written, schema
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.training.recipe.key import key_of
from torusrun.training.recipe.reading import record
from torusrun.training.recipe.train import ModelKeys, OptimizerKeys, PhaseKeys, SyncKeys, Train

RUN = "name: digits\nsite: local\n"


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172800), ("01:00:05", 3605), ("0.5h", 1800)]
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "value"), [("1B", 1), ("2KiB", 2048), ("1.5GiB", 1610612736), ("60GB", 60 * 10**9)])
def test_sizes(text: str, value: int) -> None:
    assert bytes_(text) == value


@pytest.mark.parametrize(("text", "dims"), [("8", (8,)), ("4x2", (4, 2)), ("4x16x2", (4, 16, 2)), ("auto", ())])
def test_a_grid_has_one_to_three_levels_or_is_auto(text: str, dims: tuple[int, ...]) -> None:
    assert grid(text) == dims and GRID.write(dims) == text


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20)
values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
finite = st.floats(min_value=1e-9, max_value=1e9)
numbers = st.integers(-(10**9), 10**9) | finite
options = st.booleans() | numbers | values | st.lists(numbers, max_size=3).map(tuple)
shares = st.none() | st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1))
phases = st.builds(
    PhaseKeys,
    until=st.floats(1e-3, 1e6),
    lr=st.none() | st.lists(finite, min_size=1, max_size=2).map(tuple),
    reach=st.none() | st.floats(1e-3, 1e6),
    batch=st.none() | st.integers(1, 10**9),
    rectangular=st.none() | st.booleans(),
    area=shares,
)


@given(
    st.builds(
        RunSpec,
        name=st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,20}", fullmatch=True),
        site=texts,
        nodes=st.integers(1, 10**5),
        ranks_per_node=st.none() | st.integers(1, 64),
        grid=st.lists(st.integers(1, 9999), max_size=3).map(tuple),
        time_s=st.integers(1, 10**9).map(lambda n: n / 1000),
        queue=st.none() | texts.filter(lambda text: not text.startswith("-")),
        env=st.dictionaries(st.from_regex(r"X[A-Z0-9_]{0,8}", fullmatch=True), values),
        train=st.builds(
            Train,
            optimizer=st.builds(OptimizerKeys, lr=finite),
            model=st.builds(ModelKeys, options=st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), options)),
            seed=st.integers(0, 2**31),
            phases=st.lists(phases, max_size=3).map(tuple),
        ),
    )
)
def test_a_spec_survives_writing_and_reading(spec: RunSpec) -> None:
    written = json.loads(json.dumps(as_written(spec)))
    assert read_value(RunSpec, written, "plan.json") == spec
    assert record(Train, written["train"]) == spec.train, "the ranks read what the plan holds"


def test_a_setting_replaces_and_adds() -> None:
    spec, marks = read(RunSpec, RUN + "nodes: 2\n", "run.yaml", ["nodes=4", "train.optimizer.lr=0.5", "env.A=b"])
    assert (spec.nodes, spec.train.optimizer.lr, spec.env) == (4, 0.5, {"A": "b"})
    assert str(marks["nodes"]) == "--set nodes=4"


def test_a_name_alone_is_a_section_with_that_name_and_leaves_what_an_alias_writes_elsewhere() -> None:
    mine = "train: {model: my.nets:wide, optimizer: sgd}\n"
    spec, marks = read(RunSpec, RUN + mine, "run.yaml", ["train.optimizer.lr=0.5", "train.schedule=polynomial"])
    assert spec.train.model == ModelKeys("my.nets:wide")
    assert spec.train.optimizer == OptimizerKeys("sgd", lr=0.5), "a key can be set beside a name that stands alone"
    assert spec.train.schedule.name == "polynomial"
    assert str(marks["train.model.name"]) == "run.yaml:3:16"
    text = RUN + "env: &mine {model: resnet-digits}\ntrain: *mine\n"
    spec, _ = read(RunSpec, text, "run.yaml")
    assert spec.env == {"model": "resnet-digits"} and spec.train.model == ModelKeys("resnet-digits")


def test_the_all_reduce_alone_is_how_ranks_average_their_gradients() -> None:
    assert read(RunSpec, RUN + "train: {sync: flat}\n", "run.yaml")[0].train.sync == SyncKeys(all_reduce="flat")
    with pytest.raises(SpecError, match="auto, torus, flat, hierarchical, hybrid, ddp"):
        read(RunSpec, RUN + "train: {sync: round}\n", "run.yaml")


def test_an_option_is_a_number_a_boolean_text_or_a_list_of_numbers() -> None:
    text = RUN + "train: {model: {options: {a: 1, b: 1.5, c: true, d: wide, e: '1', f: yes, g: [1, 2.5]}}}\n"
    found = read(RunSpec, text, "run.yaml")[0].train.model.options
    assert found == {"a": 1, "b": 1.5, "c": True, "d": "wide", "e": "1", "f": "yes", "g": (1, 2.5)}
    assert type(found["a"]) is int and type(found["c"]) is bool


def test_phases_are_a_list_of_sections_and_a_number_is_a_list_of_one() -> None:
    text = RUN + "train:\n  phases:\n  - {until: 5, lr: 0.5}\n  - {until: 20, lr: [0.5, 0], area: [0.1, 1]}\n"
    spec, marks = read(RunSpec, text, "run.yaml")
    assert spec.train.phases == (PhaseKeys(5.0, lr=(0.5,)), PhaseKeys(20.0, lr=(0.5, 0.0), area=(0.1, 1.0)))
    assert str(marks["train.phases[1]"]) == "run.yaml:6:5" and str(marks["train.phases[1].area"]) == "run.yaml:6:37"
    listed = schema(Train, "x")["properties"]["phases"]
    assert listed["type"] == "array" and listed["items"]["required"] == ["until"]
    several, alone = listed["items"]["properties"]["lr"]["anyOf"][0]["anyOf"]
    assert (several["type"], several["minItems"], several["maxItems"], alone["type"]) == ("array", 1, 2, "number")


def test_the_schema_takes_a_name_alone_or_a_section() -> None:
    section, alone = schema(Train, "x")["properties"]["model"]["anyOf"]
    assert "options" in section["properties"]
    assert alone["type"] == "string"
    assert alone["anyOf"][0] == {"enum": ["resnet-digits", "resnet-small", "resnet18", "resnet50"]}


def test_words_that_yaml_1_1_would_convert_stay_text_and_a_null_is_the_default_where_there_may_be_none() -> None:
    assert read(RunSpec, RUN + "grid:\n", "run.yaml")[0].grid is None
    spec, _ = read(RunSpec, RUN + "env: {A: on, B: 0777, C: 1:30, D: ~x, E: 1e3}\n", "run.yaml")
    assert spec.env == {"A": "on", "B": "0777", "C": "1:30", "D": "~x", "E": "1e3"}


@pytest.mark.parametrize("cls", [RunSpec, Train, OptimizerKeys, Site, Node])
def test_the_schema_has_every_key_with_its_meaning(cls: type) -> None:
    described = schema(cls, "x")
    keys = {key_of(f) for f in dataclasses.fields(cls)}
    assert set(described["properties"]) == keys
    assert all(value["description"] for value in described["properties"].values())
    assert described["additionalProperties"] is False


def test_the_schedulers_go_by_their_names() -> None:
    assert [schedulers.get(name).name for name in schedulers.KNOWN] == list(schedulers.KNOWN)
    described = schema(Site, "x")["properties"]["scheduler"]["description"]
    assert all(name in described for name in schedulers.KNOWN), "the site's key must tell every scheduler there is"


def test_the_users_site_comes_before_the_shipped_one(home: Path, tmp_path: Path) -> None:
    mine = home / ".config" / "torusrun" / "sites"
    mine.mkdir(parents=True)
    (mine / "local.yaml").write_text("scheduler: local\nlauncher: spawn\nnode: {ranks: 2}\n")
    (tmp_path / "run.yaml").write_text(RUN + "time: 5m\ntrain: {}\n")
    assert plan(tmp_path / "run.yaml").ranks == 2
    assert plan(tmp_path / "run.yaml", site="slurm").ranks == 4


def test_a_site_on_the_command_line_is_relative_to_the_working_directory(tmp_path: Path, monkeypatch: Patch) -> None:
    for folder, ranks in (("here", 2), ("beside", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.yaml").write_text(f"scheduler: local\nlauncher: spawn\nnode: {{ranks: {ranks}}}\n")
    (tmp_path / "beside/run.yaml").write_text("name: digits\nsite: ./own.yaml\ntrain: {}\n")
    monkeypatch.chdir(tmp_path / "here")
    assert plan("../beside/run.yaml").ranks == 4
    assert plan("../beside/run.yaml", site="./own.yaml").ranks == 2


def test_the_grid_is_auto_by_default_and_on_one_node_a_single_level(home: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN + "train: {}\n")
    assert str(plan(tmp_path / "run.yaml", site="slurm").grid) == "4"
    several = plan(tmp_path / "run.yaml", site="slurm", settings=["nodes=16"])
    assert not several.has_grid and (several.as_json()["grid"], several.as_json()["ranks"]) == ("auto", 64)
    with pytest.raises(UserError, match="'grid' is auto: it is chosen once the hosts are known"):
        several.grid.words  # noqa: B018


SPECS = {RunSpec: "name: x\nsite: local\n", Site: "scheduler: local\nlauncher: spawn\n", ImageFile: "name: x\n"}


def test_every_example_of_a_group_of_keys_can_be_read() -> None:
    read_in = {key: 0 for key in GROUPS}
    for spec, needed in SPECS.items():
        for key in GROUPS.keys() & {key_of(field) for field in dataclasses.fields(spec)}:
            with contextlib.suppress(SpecError):
                read(spec, f"{needed}{key}: {GROUPS[key]}\n", "file")
                read_in[key] += 1
    assert not [key for key, times in read_in.items() if not times]
