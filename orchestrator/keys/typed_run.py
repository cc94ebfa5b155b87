"""A run that options of the command line describe, in place of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from torusrun.orchestrator.keys.nodes import from_option
from torusrun.orchestrator.keys.read import overridden
from torusrun.orchestrator.keys.run import RunSpec

FOLDED = frozenset("\x85\u2028\u2029")  # PyYAML writes these as they are, and reads them as the ends of lines
SOURCE = "torusrun run"  # in messages about keys that no option gave


@dataclass(frozen=True)
class Option:
    """The value of a run's key, and the option that gave it, as in '--nodes 4'."""

    keys: tuple[str, ...]
    value: str | tuple[str, ...]
    typed: str


@dataclass(frozen=True)
class TypedRun:
    """A run without a file. Relative paths begin at `folder`."""

    options: tuple[Option, ...]
    folder: Path

    def __str__(self) -> str:
        return SOURCE

    def tree(self) -> yaml.Node | None:
        """The tree that a file with these values has. Raises SpecError for text that no file can have."""
        root: yaml.Node | None = None
        for option in self.options:
            root = from_option(root, option.keys, option.value, option.typed)
        return root

    def text(self, settings: Sequence[str] = ()) -> str:
        """The file with these values, changed by the `settings` of `--set`."""
        root = overridden(RunSpec, self.tree(), SOURCE, settings)
        text = str(yaml.serialize(root, allow_unicode=True, width=120)) if root else ""
        return str(yaml.serialize(root, width=120)) if FOLDED.intersection(text) else text
