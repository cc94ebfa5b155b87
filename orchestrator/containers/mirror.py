"""Where Debian's packages come from on this machine: what a recipe means that names no mirror of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from orchestrator.containers.recipe import Recipe
from orchestrator.errors import UserError

SOURCES = Path("/etc/apt")


def completed(recipe: Recipe, sources: Path = SOURCES) -> Recipe:
    """The recipe with the mirror it will be built from. Raises UserError where this machine has none to lend."""
    if recipe.base.debootstrap is None or recipe.base.mirror:
        return recipe
    return replace(recipe, base=replace(recipe.base, mirror=own(sources)))


def own(sources: Path = SOURCES) -> str:
    """The first mirror in this machine's apt sources, in either of their two forms."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    text = "\n".join(f.read_text(encoding="utf-8", errors="replace") for f in files if f.is_file())
    found = re.search(r"^(?:deb(?:\s+\[[^\]]*\])?|URIs:)\s+(https?://\S+)", text, re.MULTILINE)
    if not found:
        raise UserError("this machine has no Debian mirror of its own; name one in 'base.mirror' of the recipe")
    return found[1].rstrip("/")
