"""The metadata of a spec's fields."""

from __future__ import annotations

from typing import Any


def about(help_: str, key: str | None = None, former: str | None = None) -> dict[str, Any]:
    """A field's metadata: its help, its key in YAML if that is not its name, and its former key."""
    return {"help": help_, **({"key": key} if key else {}), **({"former": former} if former else {})}
