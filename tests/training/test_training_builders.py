"""A recipe's names become what they stand for: torusrun's own, and functions of the user's."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import ROOT, TRAIN, config, finish, launched

from torusrun.orchestrator.keys.load import load
from torusrun.training.data.packed_file import SOURCES
from torusrun.training.learner_saver import check_parts
from torusrun.training.parts import build_parts
from torusrun.training.progress import Moment
from torusrun.training.recipe.names import DATA_SETS, MODELS, OPTIMIZERS, SCHEDULES, Names, build
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, PhaseKeys, ScheduleKeys, Train

CPU = torch.device("cpu")
OF_FILES = {"imagefolder", "tar-shards", *SOURCES}  # test_training_images.py and test_training_packed.py
OWN = '''
import torch

class Blobs:
    """Two classes of points, told apart by their sign."""

    classes, shape, test_samples = 2, (3,), 20

    def __init__(self, seed, train_samples):
        draw = torch.Generator().manual_seed(seed)
        self.train_samples = train_samples
        self.labels = torch.randint(2, (train_samples + 20,), generator=draw)
        self.points = torch.rand(train_samples + 20, 3, generator=draw) + 0.1
        self.points[self.labels == 1] *= -1

    def train_batch(self, samples):
        index = torch.tensor([sample for _, sample in samples])
        return self.points[index], self.labels[index]

    def test_shard(self, rank, world):
        return self.points[-20:][rank::world], self.labels[-20:][rank::world]


class SignDescent:
    def __init__(self, model, scale):
        self.model, self.scale = model, scale

    @torch.no_grad()
    def step(self, rate):
        for weight in self.model.parameters():
            weight -= self.scale * rate * weight.grad.sign()

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def linear(classes, shape, seed, bias=True):
    return torch.nn.Linear(*shape, classes, bias=bias)

def blobs(seed, train_samples=64):
    return Blobs(seed, train_samples)

def sign_descent(model, train, scale=1.0):
    return SignDescent(model, scale)

def halves(train):
    return lambda moment: train.optimizer.lr * 0.5 ** int(moment.epochs)

def number(**anything):
    return 7

def nothing(*parts):
    return None

constant = 3
'''
MINE = {
    "model": ModelKeys("own:linear", {"bias": False}),
    "data": DataKeys("own:blobs", {"train_samples": 32}),
    "optimizer": OptimizerKeys("own:sign_descent", lr=0.5, options={"scale": 0.1}),
    "schedule": ScheduleKeys("own:halves"),
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a user's module; the ranks of `launched` find it there."""
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize(
    ("key", "names"), [("model", MODELS), ("data", DATA_SETS), ("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)]
)
def test_every_built_in_is_there(key: str, names: Names) -> None:
    for name in names.known.keys() - OF_FILES:
        options = {"channels": 1} if name == "synthetic" else {}
        parts = build_parts(replace(TRAIN, **{key: replace(getattr(TRAIN, key), name=name, options=options)}), CPU)
        check_parts(parts)
        assert parts.course.rate_at(Moment(1.0, 64.0, 1.0, 0.5)) > 0
        inputs, labels = parts.data.train_batch([(0, 1), (0, 2)])
        inputs = parts.data.normalize_on_device(inputs)
        assert inputs.shape[1:] == parts.data.shape and parts.model(inputs).shape == (2, parts.data.classes)
        shares = [labels_of(parts.data, rank, 3) for rank in range(3)]
        assert sum(len(labels) for share in shares for labels in share) == parts.data.test_samples
        assert labels.shape == (2,)


def labels_of(data: Any, rank: int, world: int) -> list[torch.Tensor]:
    """The labels of this rank's test samples, in one batch or several."""
    return [labels for _, labels in data.test_batches(rank, world)]


def test_a_model_data_optimizer_and_schedule_of_the_users_own(own: Path) -> None:
    run = finish(config(own, (2, 1), epochs=4, batch=8, log_every_steps=1, **MINE))
    assert run.events("start")[0]["params"] == 6, "three weights for each of two classes, and no bias"
    assert [event["lr"] for event in run.events("step")] == [0.5] * 4 + [0.25] * 4 + [0.125] * 4 + [0.0625] * 4
    assert run.events("done")[0]["accuracy"] == 1.0, "points that one plane parts are learned"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("numpy.float64(0.5)", "numpy"),
        ("collections.defaultdict(int)", "collections.defaultdict"),
        ("torch.ones(2).to_sparse()", "it has a tensor with the layout torch.sparse_coo"),
    ],
)
def test_a_state_that_could_not_be_loaded_again_is_refused_before_the_first_step(
    own: Path, monkeypatch: pytest.MonkeyPatch, value: str, what: str
) -> None:
    module = OWN.replace("return {}", f'return {{"seen": {value}}}')
    own.joinpath("odd.py").write_text(f"import collections, numpy\n{module}")
    monkeypatch.syspath_prepend(str(own))
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    parts = build_parts(replace(TRAIN, optimizer=OptimizerKeys("odd:sign_descent")), CPU)
    with pytest.raises(ConfigError, match=f"train.optimizer: its state_dict.. could not be loaded again: {what}"):
        check_parts(parts)


def test_the_example_of_the_page_learns(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "own-model.md").read_text()
    module, keys = (
        re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0] for kind in ("python", "yaml")
    )
    (tmp_path / "mine.py").write_text(module)
    (tmp_path / "run.yaml").write_text(f"name: mine\nsite: local\n{keys}")
    train = replace(load(tmp_path / "run.yaml").run.train, device="cpu")
    done = finish({**config(tmp_path, (2, 1)), "train": asdict(train)}).events("done")[0]
    assert done["accuracy"] > 0.9 and done["samples"] == 10 * 128


def test_a_builder_that_is_not_there_is_one_line_on_every_rank(own: Path) -> None:
    with launched(config(own, (2, 1), model=ModelKeys("own:linar"))) as launch:
        assert launch.codes() == [2, 2], "a wrong name is a mistake in the config"
    for log in launch.logs:
        (line,) = [line for line in log.read_text().splitlines() if line.startswith("training:")]
        assert "train.model.name: module 'own'" in line and "did you mean 'linear'?" in line
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"model": ModelKeys("no_such.nets:wide")},
            "train.model.name: there is no module 'no_such' on the ranks' Python",
        ),
        ({"model": ModelKeys("own.nets:wide")}, "train.model.name: there is no module 'own.nets'"),
        ({"data": DataKeys("own:constant")}, "train.data.name: module 'own' .* has no function 'constant'"),
        ({"data": DataKeys("own:blob")}, "did you mean 'blobs'"),
        (
            {"model": ModelKeys("own:number")},
            "train.model: own:number must return a torch.nn.Module with parameters, not 7",
        ),
        (
            {"data": DataKeys("own:number")},
            "train.data: own:number returned 'int', which is not a data set: it has no train_s",
        ),
        (
            {"optimizer": OptimizerKeys("own:nothing")},
            "train.optimizer: own:nothing .* is not an optimizer: it has no step",
        ),
        ({"schedule": ScheduleKeys("own:nothing")}, "train.schedule: own:nothing .* is not a function"),
        ({"model": ModelKeys("own:linear", {"bais": 1})}, "train.model: .* from train.model.options.*'bais'"),
        (
            {"model": ModelKeys("own:blobs")},
            r"train.model: own:blobs does not accept its arguments "
            r"\(classes, shape, seed;",
        ),
        (
            {"model": ModelKeys(options={"depth": 3})},
            "train.model: resnet-digits does not accept its arguments .*'depth'",
        ),
        ({"data": DataKeys("own:blobs")}, r"train.model: resnet-digits takes samples of shape \(1, height, width\)"),
    ],
)
def test_a_builder_that_does_not_fit_is_reported_with_its_key(
    own: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, object], message: str
) -> None:
    monkeypatch.syspath_prepend(own)
    monkeypatch.delitem(__import__("sys").modules, "own", raising=False)
    with pytest.raises(ConfigError, match=message) as caught:
        build_parts(replace(TRAIN, **parts), CPU)
    assert "\n" not in str(caught.value)


def test_an_error_of_the_users_module_is_not_taken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        build("train.model", ModelKeys("lacking:build"), MODELS)


def test_options_reach_a_schedule() -> None:
    train = Train(
        epochs=11, optimizer=OptimizerKeys(lr=8.0), schedule=ScheduleKeys("polynomial", 1.0, options={"power": 1.0})
    )
    assert build_parts(train, CPU).course.rate_at(Moment(0, 0, 6.0, 6.0)) == pytest.approx(4.0)


PLAIN = """
class Data:
    train_samples, test_samples, classes, shape = 4, 2, 2, (1, 8, 8)
    def train_batch(self, samples): pass
    def test_shard(self, rank, world): pass

class Mover:
    def step(self, rate): pass
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

def data(seed): return Data()
def mover(model, train): return Mover()
"""


CANNOT_CHANGE = [
    (PhaseKeys(2.0, size=12), {"data": DataKeys("plain:data")}, "[0].size: plain:data has no method 'look'"),
    (PhaseKeys(2.0, weight_decay=0.0), {"optimizer": OptimizerKeys("plain:mover")}, "[0].weight_decay: plain:mover"),
]


@pytest.mark.parametrize(("phase", "part", "key"), CANNOT_CHANGE, ids=["images", "weight decay"])
def test_what_a_part_of_the_users_own_cannot_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: PhaseKeys, part: dict[str, Any], key: str
) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(f"train.phases{key}")):
        build_parts(replace(TRAIN, epochs=2, phases=(phase,), **part), CPU)
