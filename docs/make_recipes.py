"""Write docs/reference/recipes.md from the files of the recipes: `python docs/make_recipes.py`; a test holds it current."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from torusrun.training.recipe.files import CERTAINTIES, Published, load
from torusrun.training.recipe.published import names

DIGITS = Path(__file__).parents[1] / "benchmarks" / "results" / "recipes-2026-11-24.txt"
WIDTH = 120
FACTS = ("who", "time", "accuracy", "batch", "gpus", "kind")
HEAD = """# Recipes: the record trainings

Made by `python docs/make_recipes.py` from the files in `training/recipes/`.

Ten published trainings of ResNet-50 on ImageNet can be run by name. A recipe is a set of values for the keys of `train:`.
`torusrun recipes show NAME` prints schedule, values with their marks, techniques, and all differences from the publication; the
recipe's file has the source of each value.

```sh
torusrun recipes
torusrun plan examples/recipes/digits.yaml --set train.recipe=fujitsu-70s --set train.epochs=20
torusrun submit examples/recipes/imagenet.yaml --set nodes=512 --set grid=4x512 --dry-run
```

MARKS

`train: {recipe: sony-224s, data: digits}` takes a recipe; other keys override it. `examples/recipes/digits.yaml` runs one on
four CPUs, `examples/recipes/imagenet.yaml` on ABCI, with your group and the folder of ImageNet. No recipe was run there. The
first letter of its mark stands behind each fact:

RECORDS

Do not compare the times directly: MLPerf's begin after initialization and include evaluations, DAWNBench's exclude the start
of the cluster, and papers differ.

## How a recipe is fitted to a run

`plan` prints every value that the run changes, and why. These rules keep a recipe's shape, not its accuracy.

| value | rule |
|---|---|
| data set | the run's own, the digits if it names none |
| model | the recipe's; `resnet-digits` for one channel below 32 pixels, `resnet-small` for cifar10 and mnist below 64 |
| image size | in proportion to the data set's own images, or to a given `data.size`; your own data set keeps its images |
| epochs, batch | as published, the batch per rank; if given, all phases in proportion; the batch a multiple of the ranks, and not above the training set |
| learning rate | in proportion to the batch (Goyal et al. 2017) with SGD, to its square root with LARS, as NVIDIA's submissions: 10 for 3,328, 38 for 54,080, 40.7 for 59,904; a given `optimizer.lr` scales all |
| decay in LARS' ratio | with the learning rate, if the published one is the decay times that rate |
| precision | fp32 on CPUs; otherwise the recipe's |
| groups of batch norm | the largest size that divides the ranks and is not above the recipe's |
| crops | the digits are moved, not cropped |
| values that phases change | a given value holds in all phases |

`phases` of the run replace the recipe's, `schedule` its rates; another `optimizer.name` leaves out the recipe's other keys of
the optimizer, except momentum and weight decay.

In all recipes the order of samples, crops and mirrors are torusrun's, images are scaled bilinearly, JPEGs may be decoded
smaller (`data: {options: {draft: false}}`), checkpoints follow [Daly's rule](../guides/checkpoints.md#how-often), and other
keys have torusrun's defaults. What each technique is worth: [large batches](large-batches.md). On the digits, with 1,437 images, LARS and
warm-up cannot show ([accuracies](../../benchmarks/results/SMALL_FILE)).

## Publications

A value that the publication does not give is derived, from memory, or torusrun's own: the differences say which.

PAPERS
"""


def text() -> str:
    """The page."""
    marks = "; ".join(f"*{certainty}*: {means}" for certainty, means in CERTAINTIES.items())
    page = HEAD.replace("MARKS", _wrapped(f"Marks: {marks}.")).replace("RECORDS", "\n".join(_records()))
    return page.replace("SMALL_FILE", DIGITS.name).replace("PAPERS", "\n".join(_papers()))


def _records() -> Iterator[str]:
    """A row for each recipe: its published facts."""
    yield f"| recipe | {' | '.join(FACTS)} | nodes on ABCI: V, H |\n|---|{'---|' * len(FACTS)}---|"
    for recipe in map(load, names()):
        cells = [_fact(recipe, key) for key in FACTS]
        yield f"| {recipe.name} | {' | '.join(cells)} | {-(-recipe.scale.ranks // 4)}, {-(-recipe.scale.ranks // 32)} |"


def _fact(recipe: Published, key: str) -> str:
    """A published fact with the letter of its mark and its note."""
    if key not in recipe.facts:
        return ""
    value, mark = recipe.facts[key]
    note = f" ({mark.note})" if mark.note else ""
    return f"{value} {mark.certainty[0]}{note}"


def _papers() -> Iterator[str]:
    """A row for each recipe: its file, its publication, its marks."""
    yield "| file | publication | values | differences |\n|---|---|---|---|"
    for recipe in map(load, names()):
        file = f"[{recipe.name}](../../training/recipes/{recipe.name}.yaml)"
        erratum = f" Erratum: {recipe.erratum}" if recipe.erratum else ""
        yield f"| {file} | {recipe.title}. {recipe.paper}.{erratum} | {_counted(recipe)} | {len(recipe.left_out)} |"


def _counted(recipe: Published) -> str:
    """How many values have which mark: '34 verified, 3 derived'."""
    marks = [mark.certainty for leaf, _ in recipe.leaves() if (mark := recipe.mark(leaf))]
    return ", ".join(f"{marks.count(each)} {each}" for each in CERTAINTIES if each in marks)


def _wrapped(words: str) -> str:
    return textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    (Path(__file__).parent / "reference" / "recipes.md").write_text(text())
