"""
A run file with `train: {recipe: NAME}` fits a recipe to its ranks and data; `torusrun plan` shows what that changes.

examples:
  torusrun recipes
  torusrun recipes show sony-224s
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="show", nargs="?", help="show one recipe; default: list all")
    parser.add_argument("name", metavar="RECIPE", nargs="?", help="the recipe to show")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.show.catalogue import ShownRecipe, recipe_table, recipes
    from torusrun.training.recipe.files import load, names
    from torusrun.training.recipe.near import did_you_mean

    if args.what not in (None, "show"):
        raise UserError(f"{args.what!r} is not 'show': write `torusrun recipes`, or `torusrun recipes show NAME`")
    if args.what is None:
        return shared_arguments.show(args, {"recipes": recipe_table().as_json()}, recipes())
    if args.name not in names():
        which = f"there is no recipe {args.name!r}" if args.name else "which recipe? Write its name"
        raise UserError(f"{which} (known: {', '.join(names())}){did_you_mean(args.name or '', names())}")
    shown = ShownRecipe(load(args.name))
    return shared_arguments.show(args, shown.as_json(), shown.as_text())
