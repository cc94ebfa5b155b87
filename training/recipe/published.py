"""A published recipe fitted to a run: its ranks, its data set, and its user's keys. All rules are here.

The user's keys win. Other changes follow these rules, and each change names its rule:

data        the run's own; a recipe names none
model       the recipe's, but resnet-digits if images of one channel are too small for the recipe's network, and
            resnet-small for the data sets of 28 or 32 pixels
images      in proportion to the size of the data set's own and not above it, or to a given `data.size`;
            a data set of the user's own keeps its images unless that is given
epochs      as published; if `epochs` is given, all values in epochs, such as the ends of phases, in proportion
batch       samples per rank as published; if `batch` is given, those of phases in proportion; always a multiple of
            the ranks (times `accumulate`), and not above the training set or the given batch
lr          follows the batch: linear (Goyal et al. 2017) or by the square root (NVIDIA's MLPerf submissions: 3,328 at
            10, 54,080 at 38, 59,904 at 40.7); if `optimizer.lr` is given, all rates in proportion to it
precision   fp32 without GPUs
norm.ranks  the largest group that divides the ranks
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from torusrun.training.counted import counted
from torusrun.training.data.packed_file import SOURCES
from torusrun.training.recipe.files import Change, Published, as_document, as_train, load, merged, names
from torusrun.training.recipe.fitting import Fitting, word
from torusrun.training.recipe.names import is_own
from torusrun.training.recipe.train import Train

__all__ = ["Change", "Published", "Resolved", "load", "names", "resolve"]

SMALLEST = 32  # pixels: ResNet-50 halves its images five times
OPTIONS = {  # that are kept; None: all
    "resnet-digits": {"zero_gamma"},
    "resnet-small": {"zero_gamma", "channels_last"},
    "resnet18": None,
    "resnet50": None,
}
MAY_BE_IMAGENET = ("imagefolder", "tar-shards")
RATES = ("lr", "power", "reach")
IMAGES = ("size", "test_size", "area", "aspect", "augment", "rectangular", "test_margin")
IN_ALL_PHASES = (*(f"data.{name}" for name in IMAGES if name != "size"), "optimizer.weight_decay")


class Resolved(NamedTuple):
    """A training with the values of its recipe filled in."""

    train: Train
    changes: tuple[Change, ...]


def resolve(train: Train, given: frozenset[str], ranks: int, *, gpus: bool = True) -> Resolved:
    """`train` with its recipe filled in. `given` are the dotted keys that its user wrote, without 'train.'.

    `gpus` says whether the ranks have GPUs. A `train` without a recipe, or a resolved one, does not change.
    """
    if train.recipe is None:
        return Resolved(train, ())
    fitting = Fitting(load(train.recipe), train, given, ranks, gpus)
    for rule in RULES:
        rule(fitting)
    document = fitting.held
    for key, value in _leaves(train):
        if key in given or key == "recipe":
            fitting.overruled(key, value)
            document = merged(document, _nested(key, value))
    return Resolved(as_train(document), tuple(fitting.changes))


def _phases(run: Fitting) -> None:
    if run.has("phases"):
        run.held.pop("phases")
        run.change("phases", "the recipe's", "the run's own", "given")
    elif any(key.startswith("schedule.") for key in run.given):
        run.held["phases"] = [{k: v for k, v in phase.items() if k not in RATES} for phase in run.phases]
        run.change("lr", "by the recipe's phases", f"by the schedule {run.user.schedule.name}", "given")


def _data(run: Fitting) -> None:
    if run.user.data.name in MAY_BE_IMAGENET:
        return
    reason = "given" if run.has("data.name") else "the default: a recipe names no data set"
    run.change("data", "ImageNet-1k", run.user.data.name, reason)


def _model(run: Fitting) -> None:
    model, given = run.held["model"], run.user.model.name if run.has("model.name") else None
    name = given or _small(run) or model["name"]
    kept = OPTIONS.get(name, set())
    options = {key: value for key, value in model["options"].items() if kept is None or key in kept}
    reason = "given" if given else "the images are too small for it"
    run.change("model", _shown(model["name"], model["options"]), _shown(name, options), reason)
    run.held["model"] = {"name": name, "options": options}


def _small(run: Fitting) -> str | None:
    """The network for images that are too small for ResNet-50; None if it can take them."""
    if run.data is None:
        return None
    side = min(run.data.shape[1:])
    if run.user.data.name in SOURCES and side < 2 * SMALLEST:
        return "resnet-small"
    return "resnet-digits" if run.data.shape[0] == 1 and side < SMALLEST else None


def _optimizer(run: Fitting) -> None:
    optimizer = run.held["optimizer"]
    if run.has("optimizer.name") and run.user.optimizer.name != optimizer["name"]:
        run.change("optimizer", optimizer["name"], run.user.optimizer.name, "given; its momentum and decay stay")
        run.held["optimizer"] = {key: optimizer[key] for key in ("lr", "momentum", "weight_decay")}


def _given_in_all_phases(run: Fitting) -> None:
    """Apply the user's values for the whole run to the recipe's phases too."""
    for key in filter(run.has, IN_ALL_PHASES):
        name = key.rpartition(".")[2]
        if any([phase.pop(name, None) is not None for phase in run.phases]):  # a list: all of them lose it
            run.change(f"phases.{name}", "by the recipe's phases", "the same in all", f"{key} is given")


def _own_images(run: Fitting) -> None:
    """Keep the images of the user's own data set, of which nothing is known, unless a size is given."""
    if is_own(run.user.data.name) and not (run.has("data.size") and run.user.data.size):
        for place in (run.held["data"], *run.phases):
            for name in IMAGES:
                place.pop(name, None)
        run.change("images", "with sizes and crops", "as the data set has them", "data.size is not given")


def _size(run: Fitting) -> None:
    if "size" not in run.held["data"]:
        return
    if run.has("phases"):
        run.held["data"].pop("test_size", None)  # the user's phases change the size of training images
    published, own = run.recipe.scale.size, run.data.shape[-1] if run.data else None
    size = run.user.data.size if run.has("data.size") and run.user.data.size else min(own or published, published)
    before = run.span("size", run.held["data"]["size"])
    most = size if size < published and not run.has("data.size") else math.inf  # enlarged images have no more detail
    for place in (run.held["data"], *run.phases):
        for key in {"size", "test_size"} & place.keys():
            place[key] = int(max(1, min(round(place[key] * size / published), most)))
    reason = "given" if run.has("data.size") else f"the data set's images have {own} pixels"
    run.change("size", before, run.span("size", run.held["data"]["size"]), reason)


def _epochs(run: Fitting) -> None:
    published = run.held["epochs"]
    epochs = run.user.epochs if run.has("epochs") else published
    for phase in run.phases:
        for key in {"until", "reach"} & phase.keys():
            phase[key] = float(epochs) if phase[key] == published else phase[key] * (epochs / published)
    options = run.held["optimizer"].get("options", {})
    for key in {"centre", "period"} & options.keys():  # of the RMSprop warm-up, in epochs
        options[key] *= epochs / published
    run.change("epochs", published, epochs, "given; phases in proportion" if run.phases else "given")


def _batch(run: Fitting) -> None:
    published, before = run.held["batch"], run.span("batch", run.held["batch"])
    by = run.user.batch / published if run.has("batch") else run.ranks / run.recipe.scale.ranks
    parts = run.ranks * (run.user.accumulate if run.has("accumulate") else 1)
    most = run.data.train_samples // parts * parts if run.data else math.inf
    if run.has("batch"):
        most = max(most, run.user.batch)  # else a batch above the training set could fall as the recipe's rises
    if run.has("batch") and run.phases and run.phases[0].get("batch") == published:
        run.phases[0].pop("batch")  # the given train.batch is used
    places = [place for place in (run.held, *run.phases) if "batch" in place]
    wanted = [round(place["batch"] * by / parts) * parts for place in places]
    for place, batch in zip(places, wanted, strict=True):
        place["batch"] = int(max(parts, min(batch, most)))
    reason = f"samples per rank as published, on {counted(run.ranks, 'rank')}"
    if run.has("batch"):
        run.held["batch"], reason = run.user.batch, "given"
    elif run.data is None:
        reason += "; the size of the training set is unknown here: set data.options.samples"
    elif max(wanted) > most:
        reason = f"the training set has {run.data.train_samples:,}"
    run.change("batch", before, run.span("batch", run.held["batch"]), reason)
    if not run.has("optimizer.lr"):
        _rates(run)


def _rates(run: Fitting) -> None:
    """Let the learning rate of each phase follow its batch."""
    rule, before = run.recipe.scale.rate, run.highest()
    first = _by(run.held["batch"] / run.recipe.written["batch"], rule)
    run.held["optimizer"]["lr"] *= first
    by = first
    for phase, published in zip(run.phases, run.recipe.written["phases"], strict=False):
        if "batch" in phase:
            by = _by(phase["batch"] / published["batch"], rule)
        _scale(phase, by)
    peak = run.held["optimizer"]["lr"] if not any("lr" in phase for phase in run.phases) else run.highest()
    run.held["optimizer"]["lr"] = peak
    words = {"linear": "in proportion to the batch", "square-root": "with the square root of the batch"}[rule]
    if not (run.has("phases") and run.user.phases and run.user.phases[0].lr):
        run.change("lr", f"at most {before:g}", f"at most {peak:g}", words)


def _given_rate(run: Fitting) -> None:
    if run.has("optimizer.lr"):
        before, given = run.highest(), run.user.optimizer.lr
        for phase in run.phases:
            _scale(phase, given / before)
        run.held["optimizer"]["lr"] = given
        run.change("lr", f"at most {before:g}", f"at most {given:g}", "given; all rates in proportion")


def _ratio_decay(run: Fitting) -> None:
    """Let the decay in the ratio of LARS follow the highest rate, if it is published as the decay times that rate."""
    lars, published = run.held["optimizer"].get("lars", {}), run.recipe.written["optimizer"]
    before = lars.get("ratio_decay")
    follows = before is not None and math.isclose(before, published["weight_decay"] * published["lr"])
    if follows and not run.has("optimizer.lars.ratio_decay"):
        lars["ratio_decay"] *= run.held["optimizer"]["lr"] / published["lr"]
        run.change("optimizer.lars.ratio_decay", f"{before:g}", f"{lars['ratio_decay']:g}", "in proportion to the rate")


def _precision(run: Fitting) -> None:
    published, cpu = run.held["precision"], run.user.device == "cpu" or not run.gpus
    precision = run.user.precision if run.has("precision") else "fp32" if cpu else published
    run.held["precision"] = precision
    reason = (
        "given" if run.has("precision") else "device is cpu" if run.user.device == "cpu" else "the nodes have no GPU"
    )
    run.change("precision", published, precision, reason)
    if precision != "fp16":
        run.held.pop("loss_scale", None)


def _norm(run: Fitting) -> None:
    norm = run.held.setdefault("norm", {})
    if run.has("norm.statistics") and run.user.norm.statistics == "last":
        norm.pop("momentum", None)
    if run.has("norm.ranks"):
        return
    published = norm.get("ranks", 1)
    norm["ranks"] = max(size for size in range(1, min(published, run.ranks) + 1) if run.ranks % size == 0)
    run.change("norm.ranks", published, norm["ranks"], f"groups of equal size of {counted(run.ranks, 'rank')}")


RULES: tuple[Callable[[Fitting], None], ...] = (
    _phases, _data, _model, _optimizer, _given_in_all_phases, _own_images, _size,
    _epochs, _batch, _given_rate, _ratio_decay, _precision, _norm,
)  # fmt: skip


def _by(ratio: float, rule: str) -> float:
    return ratio if rule == "linear" else math.sqrt(ratio)


def _scale(phase: dict[str, Any], by: float) -> None:
    if "lr" in phase:
        phase["lr"] = [rate * by for rate in phase["lr"]] if isinstance(phase["lr"], list) else phase["lr"] * by


def _shown(name: str, options: Mapping[str, Any]) -> str:
    """A name and its options, as 'resnet50 (version v1.5, zero_gamma true)'."""
    words = ", ".join(f"{key} {word(value)}" for key, value in options.items())
    return f"{name} ({words})" if words else name


def _leaves(held: Any, path: str = "") -> list[tuple[str, Any]]:
    """The keys of a record that do not hold a record, with their values as in JSON."""
    document, leaves = as_document(held), []
    for each in fields(held):
        value = getattr(held, each.name)
        if is_dataclass(value):
            leaves += _leaves(value, f"{path}{each.name}.")
        else:
            leaves.append((f"{path}{each.name}", document[each.name]))
    return leaves


def _nested(key: str, value: Any) -> Mapping[str, Any]:
    first, _, rest = key.partition(".")
    return {first: _nested(rest, value) if rest else value}
