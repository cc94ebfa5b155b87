"""The pictures of the docs: none is cut off, loads anything, or is large."""

import re
from pathlib import Path

import pytest

from docs.make_picture import COLUMNS, drawn, lines_of, typed

DOCS = Path(__file__).resolve().parents[2] / "docs"
TERMINALS = [path for path in sorted(DOCS.rglob("*.svg")) if "-matrix" in path.read_text()]
NUMBER = r'"([\d.]+)"'


@pytest.mark.parametrize("path", TERMINALS, ids=lambda path: path.stem)
def test_a_terminal_is_drawn_whole(path: Path) -> None:
    svg = path.read_text()
    (width, height) = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    texts = re.findall(rf"<text [^>]*x={NUMBER} y={NUMBER} textLength={NUMBER}", svg)
    assert texts, "it has no text"
    assert all(float(x) + float(length) + 10 < width and float(y) + 40 < height for x, y, length in texts)
    assert "clip" not in svg and not re.search(r"url\(|https?://(?!www\.w3\.org/2000/svg)", svg)


def test_every_picture_is_small_and_on_a_page() -> None:
    pages = "".join(path.read_text() for path in [DOCS.parent / "README.md", *DOCS.rglob("*.md")])
    for path in (path for kind in ("svg", "png") for path in DOCS.rglob(f"*.{kind}")):
        assert path.stat().st_size <= 200_000, f"{path}: {path.stat().st_size:,} bytes"
        assert f"{path.name})" in pages, f"no page shows {path}"


def test_a_line_that_does_not_fit_is_refused() -> None:
    assert lines_of(drawn([typed("x" * (COLUMNS - 2))])) == ["$ " + "x" * (COLUMNS - 2)]
    with pytest.raises(AssertionError, match=f"longer than {COLUMNS} columns"):
        drawn([typed("x" * (COLUMNS - 1))])
