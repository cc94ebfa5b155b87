"""Fills the published recipe that a run names into the run, before its plan."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.spec.load import Loaded
from training.recipe.files import Change


def filled_in(loaded: Loaded) -> tuple[Loaded, tuple[Change, ...]]:
    """(the run with the values of its recipe for keys that its file lacks, its changes to the recipe)."""
    run, site = loaded.run, loaded.site
    if run.command or run.train.recipe is None:
        return loaded, ()
    from training.recipe.published import resolve  # imported late: it reads YAML

    given = frozenset(key.removeprefix("train.") for key in loaded.marks if key.startswith("train."))
    ranks = run.nodes * (run.ranks_per_node or site.node.ranks)
    train, changes = resolve(run.train, given, ranks, gpus=site.node.gpus > 0)
    return replace(loaded, run=replace(run, train=train)), changes
