"""The data sets with names as a table: their sizes, their terms, and the packed file of each that is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.training.data.packed_file import SOURCES, Source, folder


def listing(into: Path | None = None) -> Table[Source]:
    """The table, for the packed files in a folder; default: the user's own."""
    place = into or folder()

    def file(source: Source) -> str | None:
        path = place / source.file
        return str(path) if path.is_file() else None

    def image(source: Source) -> str:
        channels, height, width = source.facts.shape
        return f"{height} x {width} {'grey' if channels == 1 else 'RGB'}"

    columns: Sequence[Column[Source]] = (
        Column("NAME", lambda source: source.name, key="name"),
        Column("TRAINING", lambda source: source.facts.train_samples, "{:,}".format, "train_samples"),
        Column("TEST", lambda source: source.facts.test_samples, "{:,}".format, "test_samples"),
        Column("CLASSES", lambda source: source.facts.classes, key="classes", left_out=1),
        Column("IMAGES", image, key="images", right=False, left_out=2),
        Column("FILE", lambda source: plain(file(source) or "not prepared"), right=False),
        Column(None, file, key="file"),
        Column(None, lambda source: source.package, key="package"),
        Column(None, lambda source: source.archive_sha256, key="archive_sha256"),
        Column(None, lambda source: source.content_sha256, key="content_sha256"),
        Column(None, lambda source: source.package_licence, key="package_licence"),
        Column(None, lambda source: source.data_terms, key="data_terms"),
    )
    return Table(columns, list(SOURCES.values()), lambda source: [f"  {line}" for line in terms(source)])


def terms(source: Source) -> list[str]:
    """The licences of the package and of the data."""
    return [f"npm {source.package}: {source.package_licence}; the data: {source.data_terms}"]
