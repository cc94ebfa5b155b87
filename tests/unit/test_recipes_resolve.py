"""A recipe fitted to a run: it fits any ranks, what the user wrote wins, and the rules are those that are stated."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torusrun.training.data.view import View
from torusrun.training.recipe.files import as_document, as_train, load
from torusrun.training.recipe.fits import misfits
from torusrun.training.recipe.published import Resolved, names, resolve
from torusrun.training.recipe.train import Train
from torusrun.training.schedule import phases_of

NAMES = st.sampled_from(names())
RANKS = st.integers(1, 5000)


def fitted(name: str, ranks: int, gpus: bool = True, data: object = "digits", **given: object) -> Resolved:
    """A recipe as in a run file that says `given`; `data` is a name, or all of the section."""
    return written(name, ranks, gpus, data={"name": data} if isinstance(data, str) else data, **given)


def written(name: str, ranks: int = 4, gpus: bool = True, **given: object) -> Resolved:
    """A recipe as in a run file that says `given`, and names no data set."""
    held = {"recipe": name, **given}
    return resolve(as_train(held), frozenset(keys_of(held)), ranks, gpus=gpus)


def keys_of(held: object, before: str = "") -> Iterator[str]:
    """The dotted keys of a run file; options are one value."""
    assert isinstance(held, dict)
    for key, value in held.items():
        section = isinstance(value, dict) and key != "options"
        yield from keys_of(value, f"{before}{key}.") if section else [f"{before}{key}"]


def test_small_images_in_colours_keep_the_network() -> None:
    counts = {"root": "/data", "samples": 100, "test_samples": 10, "classes": 3}
    data = {"name": "imagefolder", "size": 24, "options": counts}
    assert fitted("sony-224s", 2, data=data).train.model.name == "resnet50"
    assert fitted("sony-224s", 2).train.model.name == "resnet-digits"


@pytest.mark.parametrize("data", ["cifar10", "mnist"])
def test_the_small_data_sets_get_the_small_network_and_their_own_size(data: str) -> None:
    train = fitted("google-77s", 4, data=data).train
    assert (train.model.name, train.model.options) == ("resnet-small", {"zero_gamma": True})
    assert train.data.size == (32 if data == "cifar10" else 28)
    assert fitted("google-77s", 4, data={"name": data, "size": 128}).train.model.name == "resnet50"


@pytest.mark.parametrize("size", [{}, {"size": 224}])
def test_phases_of_the_users_own_are_tested_with_images_as_large_as_those_they_train_with(size: dict[str, int]) -> None:
    train = written(
        "fastai-18min", data={"name": "synthetic", **size}, phases=({"until": 9}, {"until": 50, "size": 160})
    ).train
    assert {phase.view.test_size or phase.view.size for phase in phases_of(train, 1000)[1:]} == {160}
    assert train.data.test_size is None


def test_why_a_batch_changes_is_reported() -> None:
    def why(data: dict[str, object]) -> str:
        (found,) = (each for each in fitted("nvidia-80s", 100, data=data).changes if each.key == "batch")
        return found.reason

    counts = {"root": "/data", "test_samples": 10, "classes": 3}
    assert why({"name": "imagefolder", "options": {**counts, "samples": 100_000}}).startswith("samples per rank")
    assert why({"name": "imagefolder", "options": {**counts, "samples": 1000}}) == "the training set has 1,000"
    assert why({"name": "tar-shards", "options": {"root": "/none"}}).endswith("set data.options.samples")


@given(NAMES, RANKS, st.none() | st.integers(1, 400), st.none() | st.integers(1, 50), st.integers(1, 3), st.booleans())
@settings(max_examples=100, deadline=None)
def test_it_fits_any_ranks_batch_and_epochs(
    name: str, ranks: int, epochs: int | None, per_part: int | None, accumulate: int, gpus: bool
) -> None:
    own: dict[str, object] = {"accumulate": accumulate}
    if epochs:
        own["epochs"] = epochs
    if per_part:
        own["batch"] = ranks * accumulate * per_part
    train, _ = found = fitted(name, ranks, gpus, **own)
    assert list(misfits(train, ranks)) == []
    assert {key: getattr(train, key) for key in own} == own
    assert train.phases[-1].until == train.epochs
    again = resolve(train, frozenset({"recipe", "data.name", *own}), ranks, gpus=gpus)
    assert again == found


@given(NAMES, RANKS, st.floats(1e-4, 50))
@settings(max_examples=50, deadline=None)
def test_a_given_rate_is_the_highest(name: str, ranks: int, rate: float) -> None:
    train, _ = written(name, ranks, optimizer={"lr": rate})
    assert train.optimizer.lr == rate
    assert max(each for phase in train.phases for each in phase.lr or ()) == pytest.approx(rate)


@pytest.mark.parametrize("name", names())
def test_at_the_published_scale_nothing_changes(name: str) -> None:
    recipe = load(name)
    train, changes = fitted(name, recipe.scale.ranks, data="imagefolder")
    assert changes == ()
    assert as_document(train) == {**as_document(recipe.train), "data": as_document(train)["data"]}
    assert train.data.size == recipe.train.data.size


def test_samples_of_a_rank_stay_and_the_rate_follows_the_batch() -> None:
    four = fitted("nvidia-80s", 4).train
    assert four.batch == 4 * 39
    assert four.phases[0].lr == (0.0, pytest.approx(40.7 * math.sqrt(4 * 39 / 59904)))
    four = fitted("facebook-1h", 4).train
    assert four.batch == 4 * 32
    assert [phase.lr[-1] for phase in four.phases if phase.lr] == pytest.approx([0.05, 0.05, 0.005, 0.0005, 0.00005])


def test_a_given_batch_scales_those_of_all_phases_up_to_the_training_set() -> None:
    train = fitted("sony-224s", 4, batch=128).train
    assert (train.batch, [phase.batch for phase in train.phases]) == (128, [None, 128, 256])
    train = fitted("fastai-18min", 4, batch=1024).train
    assert max(phase.batch or 0 for phase in train.phases) == 1436  # of 1437 digits, a multiple of 4
    train = fitted("sony-224s", 4, batch=5000).train
    assert (train.batch, [phase.batch for phase in train.phases]) == (5000, [None, 5000, 5000])


@pytest.mark.parametrize("name", names())
def test_what_is_given_for_the_whole_run_holds_in_every_phase(name: str) -> None:
    data = {"name": "imagefolder", "area": [0.3, 0.7], "aspect": [1.0, 2.0], "augment": False, "rectangular": False}
    train, changes = written(name, data={**data, "test_size": 99, "test_margin": 1.5}, optimizer={"weight_decay": 0.25})
    for phase in phases_of(train, 1000):
        assert phase.weight_decay == 0.25
        assert phase.view[1:] == (99, (0.3, 0.7), (1.0, 2.0), False, False, 1.5)
    lost = {key for phase in load(name).written["phases"] for key in phase} & {"weight_decay", "area", "rectangular"}
    assert {f"phases.{key}" for key in lost} <= {change.key for change in changes}


def test_digits_stay_where_they_are_if_the_user_says_so() -> None:
    train = written("surfsara-28min", data={"augment": False}).train
    assert not any(phase.view.augment for phase in phases_of(train, 1437))


@pytest.mark.parametrize("name", names())
def test_a_data_set_of_the_users_own_keeps_its_images(name: str) -> None:
    train = fitted(name, 4, data="mine:images").train
    assert {phase.view for phase in phases_of(train, 1000)} == {View()}
    assert fitted(name, 4, data={"name": "mine:images", "size": 112}).train.data.size == 112


@pytest.mark.parametrize(
    ("name", "key", "given"),
    [
        ("google-77s", "norm.ranks", {"norm": {"ranks": 2}}),
        ("fujitsu-70s", "optimizer.lars.ratio_decay", {"optimizer": {"lars": {"ratio_decay": 0.1}}}),
    ],
)
def test_a_given_value_is_one_change(name: str, key: str, given: dict[str, object]) -> None:
    _, changes = written(name, **given)
    assert [change.reason for change in changes if change.key == key] == ["given"]


def test_images_are_in_proportion_to_those_of_the_data_set() -> None:
    train = fitted("fastai-18min", 4).train
    assert [phase.size for phase in train.phases if phase.size] == [5, 8, 8]
    train = fitted("fastai-18min", 4, data={"name": "imagefolder", "size": 112}).train
    assert (train.data.size, [phase.size for phase in train.phases if phase.size]) == (112, [64, 112, 144])


def test_given_epochs_move_the_ends_of_all_phases_and_of_the_way_from_rmsprop_to_sgd() -> None:
    train = fitted("facebook-1h", 4, epochs=9).train
    assert [phase.until for phase in train.phases] == pytest.approx([0.5, 3, 6, 8, 9])
    assert fitted("pfn-15min", 4, epochs=9).train.optimizer.options["centre"] == pytest.approx(1)


def test_phases_or_a_schedule_of_the_user_replace_those_of_the_recipe() -> None:
    train, changes = written("fujitsu-70s", epochs=3, phases=[{"until": 3, "lr": 0.5}])
    assert "lr" not in {change.key for change in changes}, "the user's phases say it"
    assert [(phase.until, phase.lr, phase.batch) for phase in train.phases] == [(3, (0.5,), None)]
    assert train.optimizer.lars.trust == 0.0025
    train = written("sony-224s", schedule={"name": "cosine", "warmup_epochs": 2.0}).train
    assert [(phase.lr, phase.batch) for phase in train.phases] == [(None, 64), (None, 64), (None, 128)]
    assert list(misfits(train, 4)) == []


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "rmsprop-warmup"])
@pytest.mark.parametrize("name", names())
def test_another_optimizer_leaves_the_recipes_own_keys_out(name: str, optimizer: str) -> None:
    train = written(name, optimizer={"name": optimizer}).train
    assert train.optimizer.name == optimizer and list(misfits(train, 4)) == []


def test_groups_of_batch_norm_divide_the_ranks() -> None:
    assert {ranks: fitted("google-77s", ranks).train.norm.ranks for ranks in (1, 4, 6, 7, 24)} == {
        1: 1, 4: 4, 6: 6, 7: 7, 24: 8,
    }  # fmt: skip


def test_no_gpu_means_fp32_unless_a_precision_is_given() -> None:
    assert fitted("fastai-18min", 4, gpus=False).train.precision == "fp32"
    assert fitted("fastai-18min", 4, gpus=True).train.precision == "fp16"
    assert fitted("fastai-18min", 4, gpus=True, device="cpu").train.precision == "fp32"
    assert fitted("fastai-18min", 4, gpus=False, precision="bf16").train.precision == "bf16"


def test_another_value_than_the_recipes_is_a_change() -> None:
    changes = fitted("fujitsu-70s", 4, label_smoothing=0.2, trace=True, seed=3).changes
    assert [(c.published, c.now, c.reason) for c in changes if c.key == "label_smoothing"] == [("0.1", "0.2", "given")]
    assert not {"trace", "seed"} & {change.key for change in changes}


@pytest.mark.parametrize("name", names())
def test_the_network_for_the_digits_begins_with_the_recipes_zero_gamma(name: str) -> None:
    published = load(name).written["model"]["options"]["zero_gamma"]
    assert fitted(name, 4).train.model.options == {"zero_gamma": published}


def test_a_decay_in_the_ratio_follows_the_rate_only_if_it_is_their_product() -> None:
    given = {name: fitted(name, 4).train.optimizer for name in ("fujitsu-70s", "google-77s")}
    assert given["fujitsu-70s"].lars.ratio_decay == pytest.approx(5e-5 * given["fujitsu-70s"].lr)
    assert given["google-77s"].lars.ratio_decay == 1e-4


def test_every_change_has_a_reason_and_without_a_recipe_nothing_changes() -> None:
    for name in names():
        for change in fitted(name, 4, gpus=False, epochs=20).changes:
            assert change.reason and change.published != change.now
    assert resolve(Train(), frozenset(), 4) == (Train(), ())
