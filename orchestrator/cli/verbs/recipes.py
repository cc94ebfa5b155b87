"""
examples:
  torusrun recipes
  torusrun recipes show sony-224s
  torusrun recipes show fastai-18min --ranks 4 --data digits --epochs 20
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError

if TYPE_CHECKING:
    from torusrun.orchestrator.show.recipes.recipe import Shown

SCHEMA = 1
MOST_RANKS = 1_000_000
OPTIONS = ("ranks", "batch", "data", "epochs")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="show", nargs="?", help="show one recipe; default: list all")
    parser.add_argument("name", metavar="RECIPE", nargs="?", help="the recipe to show")
    parser.add_argument("--ranks", metavar="N", type=int, help="with show: fit the recipe to N ranks")
    parser.add_argument("--batch", metavar="B", type=int, help="with show: samples per step, over all ranks")
    parser.add_argument("--data", metavar="NAME", help="with show: the data set; default: images as published")
    parser.add_argument("--epochs", metavar="E", type=int, help="with show: passes over the training set")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.show.recipes import listing

    if args.what not in (None, "show"):
        raise UserError(f"{args.what!r} is not 'show': write `torusrun recipes`, or `torusrun recipes show NAME`")
    given = [f"--{option}" for option in OPTIONS if getattr(args, option) is not None]
    if args.what is None and given:
        raise UserError(f"{given[0]} is for one recipe: write `torusrun recipes show NAME {given[0]} ...`")
    if args.what is None:
        print(json.dumps({"schema": SCHEMA, **listing.as_json()}, indent=1) if args.json else listing.as_text())
        return DONE
    shown = _shown(args)
    print(json.dumps({"schema": SCHEMA, **shown.as_json()}, indent=1) if args.json else shown.as_text())
    return DONE


def _shown(args: argparse.Namespace) -> Shown:
    from torusrun.orchestrator.show.recipes.recipe import Shown
    from torusrun.training.recipe.files import load, names
    from torusrun.training.recipe.near import did_you_mean

    if args.name not in names():
        which = f"there is no recipe {args.name!r}" if args.name else "which recipe? Write its name"
        raise UserError(f"{which} (known: {', '.join(names())}){did_you_mean(args.name or '', names())}")
    recipe = load(args.name)
    if all(getattr(args, option) is None for option in OPTIONS):
        return Shown(recipe, recipe.train, (), recipe.scale.ranks, recipe.scale.epoch_samples)
    return _scaled(args)


def _scaled(args: argparse.Namespace) -> Shown:
    """The recipe as in a run with these options."""
    from torusrun.orchestrator.show.recipes.recipe import Shown
    from torusrun.training.recipe.facts import data_facts
    from torusrun.training.recipe.files import as_train, load
    from torusrun.training.recipe.fits import misfits
    from torusrun.training.recipe.published import resolve
    from torusrun.training.recipe.reading import ConfigError

    recipe = load(args.name)
    ranks = recipe.scale.ranks if args.ranks is None else args.ranks
    if not 1 <= ranks <= MOST_RANKS:
        raise UserError(f"--ranks: must be from 1 to {MOST_RANKS}")
    options = {"batch": args.batch, "epochs": args.epochs}
    given = {key: value for key, value in options.items() if value is not None}
    try:
        asked = as_train({"recipe": args.name, "data": {"name": args.data or "imagefolder"}, **given})
        train, changes = resolve(asked, frozenset({"data.name", *given}), ranks)
    except ConfigError as error:
        raise UserError(str(error)) from None
    for misfit in misfits(train, ranks):
        if misfit.key == "train.data.name":
            continue  # the folder is for a run to name
        raise UserError(f"{misfit.key} {misfit.message}; {misfit.advice}")
    data = data_facts(train)
    return Shown(recipe, train, changes, ranks, data.train_samples if data else recipe.scale.epoch_samples)
