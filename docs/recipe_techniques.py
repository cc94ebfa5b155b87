"""The table of docs/reference/recipes.md with every technique of every recipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from benchmarks.recipe_ablations import TECHNIQUES, ablations
from torusrun.training.recipe.files import Published, load
from torusrun.training.recipe.published import names

INDEX = re.compile(r"\[\d+\]")
KEYS = {  # of each technique: beginnings of the keys that have it
    "warm-up": ("phases.lr", "phases.until"),
    "LARS": ("optimizer.name", "optimizer.lr", "optimizer.momentum", "optimizer.weight_decay", "optimizer.lars."),
    "RMSprop warm-up": ("optimizer.name", "optimizer.options"),
    "label smoothing": ("label_smoothing",),
    "batch-size control": ("phases.batch",),
    "image sizes": ("phases.size", "phases.test_size"),
    "augmentation off at the end": ("phases.augment",),
    "weight decay by phase": ("phases.weight_decay",),
    "last batch's statistics": ("norm.statistics",),
    "batch norm over ranks": ("norm.ranks",),
    "zero gamma": ("model.options.zero_gamma",),
    "no decay on vectors": ("optimizer.lars.skip", "optimizer.decay_vectors"),
    "gradients in 16 bits": ("sync.wire",),
    "momentum correction": ("optimizer.momentum_correction",),
    "initial weights": ("model.options.init", "model.options.last_std", "model.options.zero_bias"),
    "all-reduce": ("sync.all_reduce", "sync.buckets"),
    "half precision": ("precision", "loss_scale"),
    "statistics of batch norm": ("norm.momentum", "norm.eps"),
    "ensemble of branches": ("phases.collapse",),
    "rectangular test images": ("phases.rectangular",),
    "test images": ("data.test_margin",),
    "crops": ("data.area", "data.aspect", "phases.area"),
    "MLPerf log": ("mlperf_log",),
}


def by_technique(without: Mapping[tuple[str, str], str], shown: Callable[[object], str]) -> Iterator[str]:
    """A row for each technique of each recipe: its values, where the source has them, and its measurement.

    `without` has the differences by technique and recipe, `shown` writes a value.
    """
    yield "| recipe | technique | value in the file | mark, source, and where | left out, in points |"
    yield "|---|---|---|---|---|"
    for name in names():
        recipe = load(name)
        ablated = {technique for technique, _ in ablations(recipe.train)}
        for technique, keys in KEYS.items():
            leaves = [(leaf, value) for leaf, value in recipe.leaves() if INDEX.sub("", leaf).startswith(keys)]
            if technique in TECHNIQUES and technique not in ablated or not leaves and technique not in ablated:
                continue
            values: dict[str, list[str]] = {}
            for leaf, value in leaves:
                values.setdefault(INDEX.sub("", leaf), []).append(shown(value))
            here = "; ".join(f"`{key}` {', '.join(dict.fromkeys(each))}" for key, each in values.items())
            marks = dict.fromkeys(_where(recipe, leaf) for leaf, _ in leaves)
            run = without.get((technique, name), "not run")
            yield f"| {name} | {technique} | {here or 'no key: the default'} | {'; '.join(marks) or 'none'} | {run} |"


def _where(recipe: Published, leaf: str) -> str:
    """The mark of a value, and its source with the line."""
    mark = recipe.mark(leaf)
    if mark is None:
        return "no mark"
    source = next(name for name, text in recipe.sources.items() if text == mark.source)
    return f"{mark.certainty}: *{source}*" + (f", {mark.note}" if mark.note else "")
