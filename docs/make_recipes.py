"""Write docs/reference/recipes.md from the files of the recipes: `python docs/make_recipes.py`; a test holds it current."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from make_large_batches import RESULTS, left_out
from recipe_techniques import INDEX, by_technique

from benchmarks.large_batch.cell import cells as studied
from benchmarks.large_batch.results import read
from benchmarks.large_batch.study import MNIST
from torusrun.orchestrator.show.recipes.marks import NO_BREAK, weakest, with_mark
from torusrun.training.recipe.files import CERTAINTIES, Mark, Published, load
from torusrun.training.recipe.fitting import word
from torusrun.training.recipe.published import names

DIGITS = Path(__file__).parents[1] / "benchmarks" / "results" / "recipes-2026-11-24.txt"
WIDTH = 120
MOST_NODES_V = 512  # of a job on ABCI's V nodes
LONGER = {"fastai-18min": " --set train.batch=128 --set train.epochs=100"}  # few steps in 50 epochs of 1,437 images
CURVES = ("phases.until", "phases.reach", "phases.power", "phases.lr")  # `recipes show` draws them
HEAD = """# Recipes: the record trainings

Made by `python docs/make_recipes.py` from the files in `training/recipes/`.

Ten published trainings of ResNet-50 on ImageNet can be run by name. A recipe is a set of values for the keys of `train:`, and
every value has a mark. `torusrun recipes` lists them; `show` prints a schedule with its marks and curves.

```sh
torusrun recipes
torusrun recipes show sony-224s
torusrun recipes show fastai-18min --ranks 4 --data digits --epochs 20
```

| mark | meaning |
|---|---|
MARKS

`train.recipe` in a run file takes a recipe. Other keys of the file override it. This is `examples/recipes/digits.yaml`:

```yaml
DIGITS```

```sh
torusrun plan examples/recipes/digits.yaml --set train.recipe=fujitsu-70s --set train.epochs=20
```

`plan` prints every value that the run changes of its recipe, and why. The same is kept in the run's plan and in its provenance.

## How a recipe is fitted to a run

| value | rule |
|---|---|
| data set | the run's own, the digits if it names none |
| model | the recipe's; `resnet-digits`, with the recipe's `zero_gamma`, if images have one channel and are smaller than 32 pixels; `resnet-small` for cifar10, mnist and fashion-mnist below 64 |
| image size | in proportion to the size of the data set's own images and not above it, or to a given `data.size`: for the digits 8 in place of 224 or 288. A data set of your own keeps its images as they are, uncropped too, unless `data.size` is given |
| epochs | as published; if `epochs` is given, the ends of all phases in proportion |
| batch | samples per rank as published; if `batch` is given, those of all phases in proportion; a multiple of the ranks, and not above the training set or a larger `batch` that is given |
| learning rate | with the batch. In proportion (Goyal et al. 2017) for recipes with SGD. With its square root for recipes with LARS, as NVIDIA's MLPerf submissions have it: 10 for 3,328, 38 for 54,080, 40.7 for 59,904. If `optimizer.lr` is given, all rates in proportion to it |
| decay in LARS' ratio | in proportion to the learning rate, if the published one is the decay times that rate |
| precision | fp32 if `device` is cpu or the site's nodes have no GPU; otherwise the recipe's |
| groups of batch norm | the largest size that divides the ranks and is not above the recipe's |
| crops | the digits are moved and not cropped; in phases in which the recipe does not crop, they are not moved |
| values that phases change | a given `optimizer.weight_decay`, `data.area` or the like holds in all phases |

`phases` in the run file replace all of the recipe's, and a `schedule` there says the learning rate in place of the phases. Another
`optimizer.name` leaves out the recipe's other keys of the optimizer, except momentum and weight decay.

In all recipes the order of samples, the random crops and the mirrors are torusrun's, images are scaled bilinearly, training JPEGs of which
fewer pixels are needed are decoded at a half, a quarter or an eighth of their size (`data: {options: {draft: false}}` decodes them whole), and keys that a file does not name
have torusrun's defaults. What was read of the publications names no interval between checkpoints, except that fast.ai's code saves at every phase and at every
new best accuracy above 93 %. In all recipes torusrun chooses the interval ([checkpoints](../guides/checkpoints.md)) unless `checkpoint_every_steps` is
given. Other differences are named with each recipe.

These rules keep a recipe's shape. They do not promise its accuracy at another size.

Do not compare the times directly: MLPerf's begin after initialization and include evaluations, DAWNBench's exclude the start of
the cluster, and papers differ.

## Every value of every recipe

The letter is the mark: v verified, s secondary, d derived, m memory. Phases may have several values; `torusrun recipes show` has their curves. The line of
each source is in the section of its recipe, which techniques were run with and without is in the next one.

TECHNIQUES

## Every technique of every recipe

The last column is the difference that the recipe makes without the technique at 8,192 images of MNIST a step, each with its own best rate, bold if it
shows ([large batches](large-batches.md)). "not run" says that no measurement leaves it out, `...` that it is still to be made. If the value in the source is another one, the section of the recipe says so under "Differences from the publication".

BY_TECHNIQUE

## On the digits

`python -m benchmarks.recipes --only large --seeds 3`: four ranks, the epochs of each recipe, and 360 images a step, a quarter of the training set. Percent of
360 test images, of which one is 0.28, and the standard deviation over seeds ([results](../../benchmarks/results/SMALL_FILE), with the ensembles of SURFsara) [measured].
surfsara-28min was measured with momentum correction, which its recipe no longer has.

SMALL_TABLE

The rate of recipes without LARS is meant for ImageNet, 0.1 for 256 samples. Here they have that of plain SGD, in proportion to the batch
(`optimizer.lr: 0.5625`). fastai-18min has few steps in its 50 epochs. With 1,437 images LARS and warm-up cannot show: they are meant for few steps with many
images. [Large batches](large-batches.md) has every recipe whole and without each technique in that regime, on MNIST.

## Where to run them

On four CPUs, with the digits: `examples/recipes/digits.yaml`. On ABCI: `examples/recipes/imagenet.yaml`, with your group in place
of `gaa50000` and the folder of ImageNet in `root`. No recipe was run on ABCI: both profiles are from its guide.

```sh
torusrun submit examples/recipes/imagenet.yaml --set nodes=512 --set grid=4x512 --dry-run
torusrun submit examples/recipes/imagenet.yaml --site abci-h --set nodes=8 --dry-run
```
"""


def text() -> str:
    """The page."""
    marks = "\n".join(f"| {word} | {means} |" for word, means in CERTAINTIES.items())
    digits = (Path(__file__).parents[1] / "examples" / "recipes" / "digits.yaml").read_text()
    head = HEAD.replace("MARKS", marks).replace("DIGITS", digits)
    head = head.replace("BY_TECHNIQUE", "\n".join(by_technique(_left_out(), _short)))
    head = head.replace("SMALL_TABLE", "\n".join(_on_digits())).replace("SMALL_FILE", DIGITS.name)
    head = head.replace("TECHNIQUES", "\n".join(_techniques()))
    return "\n".join([head, *("\n".join(_section(load(name))) for name in names())])


def _techniques() -> Iterator[str]:
    """A row for each key that a recipe gives and a column for each recipe: its values with the weakest of their marks."""
    found: dict[str, dict[str, list[tuple[object, Mark | None]]]] = {}
    for name in names():
        recipe = load(name)
        for leaf, value in recipe.leaves():
            if INDEX.sub("", leaf) not in CURVES:
                key = INDEX.sub("", leaf)
                found.setdefault(key, {}).setdefault(name, []).append((value, recipe.mark(leaf)))
    yield f"| key | {' | '.join(names())} |\n|---|{'---|' * len(names())}"
    for key, cells in sorted(found.items()):
        yield f"| `{key}` | {' | '.join(_cell(cells.get(name, [])) for name in names())} |"


def _cell(held: list[tuple[object, Mark | None]]) -> str:
    values = dict.fromkeys(_short(value) for value, _ in held)
    return with_mark(", ".join(values), weakest(*(mark for _, mark in held))).replace(NO_BREAK, " ")


def _left_out() -> dict[tuple[str, str], str]:
    """The difference without each technique of each recipe, by technique and recipe."""
    scores = read(RESULTS)
    return {
        (cell.without, cell.side): left_out(cell, scores) for cell in studied(MNIST) if cell.is_recipe and cell.without
    }


def _on_digits() -> Iterator[str]:
    """The rows of `python -m benchmarks.recipes --only large`, whose columns are two or more spaces apart."""
    yield "| recipe | 360 images a step | difference from plain SGD |\n|---|---|---|"
    rows = [
        re.split(" {2,}", line) for line in DIGITS.read_text().splitlines() if re.match(r"[a-z0-9-]+ .* batch \d", line)
    ]
    (_, _, accuracy, spread), *recipes = rows
    yield f"| plain SGD, 64 images a step | {accuracy} +- {spread} | |"
    for name, _, accuracy, spread, difference, *_ in sorted(recipes, key=lambda row: -float(row[2])):
        yield f"| {name} | {accuracy} +- {spread} | {difference} |"


def _section(recipe: Published) -> Iterator[str]:
    yield f"## {recipe.name}\n\n{_wrapped(f'{recipe.title}. {recipe.paper}.')}\n"
    yield "| published | value | mark | source |\n|---|---|---|---|"
    for key, (value, mark) in recipe.facts.items():
        note = f" ({mark.note})" if mark.note else ""
        yield f"| {key} | {value}{note} | {mark.certainty} | {mark.source} |"
    if recipe.erratum:
        yield f"\n{_wrapped(f'Erratum: {recipe.erratum}')}"
    yield "\nTechniques:\n"
    yield from (_wrapped(f"- {each}", "  ") for each in recipe.techniques)
    yield "\nIts values, by source:\n"
    yield from _values(recipe)
    yield "\nDifferences from the publication:\n"
    yield from (_wrapped(f"- {each}", "  ") for each in recipe.left_out)
    yield f"\n{_places(recipe)}\n"


def _values(recipe: Published) -> Iterator[str]:
    """The sources by name, then a row for each mark with all its values."""
    names_of = {text: name for name, text in recipe.sources.items()}
    yield from (_wrapped(f"- *{name}*: {text}", "  ") for text, name in names_of.items())
    yield "\n| key | value | mark | source, and where |\n|---|---|---|---|"
    for key, mark in recipe.marks.items():
        said = ", ".join(_said(key, leaf, value) for leaf, value in recipe.leaves() if recipe.mark(leaf) is mark)
        note = f": {mark.note}" if mark.note else ""
        yield f"| `{key}` | {said} | {mark.certainty} | *{names_of[mark.source]}*{note} |"


def _said(key: str, leaf: str, value: object) -> str:
    """A value with the part of its key that `key` lacks: 'lars.eps 1e-05' below 'optimizer'."""
    rest = leaf.removeprefix(key).lstrip(".") if leaf.startswith(key) else ""
    return f"{rest} {_short(value)}".strip()


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else word(value)


def _places(recipe: Published) -> str:
    nodes, name = -(-recipe.scale.ranks // 4), recipe.name
    v = f"{nodes} nodes are its scale"
    if nodes > MOST_NODES_V:
        v = f"its scale is {nodes} nodes, and a job has at most {MOST_NODES_V}"
    lines = [
        "<!-- not executed: takes minutes, or a cluster -->\n",
        f"    torusrun submit examples/recipes/digits.yaml --set train.recipe={name}{LONGER.get(name, '')}",
        f"    torusrun submit examples/recipes/imagenet.yaml --set train.recipe={name} --set nodes={min(nodes, MOST_NODES_V)}",
        f"    torusrun submit examples/recipes/imagenet.yaml --set train.recipe={name} --site abci-h --set nodes={-(-nodes // 8)}",
    ]
    where = f"On four CPUs, on ABCI's V nodes ({v}), and on H nodes with a quarter of these GPUs:"
    return _wrapped(where) + "\n\n" + "\n".join(lines)


def _wrapped(words: str, indent: str = "") -> str:
    return textwrap.fill(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    (Path(__file__).parent / "reference" / "recipes.md").write_text(text())
