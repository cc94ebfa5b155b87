"""How a field of a spec says what it means."""

from __future__ import annotations

from typing import Any


def about(help_: str, key: str | None = None) -> dict[str, Any]:
    """A field's metadata: what it means, and its key in YAML where that differs from its name."""
    return {"help": help_, **({"key": key} if key else {})}
