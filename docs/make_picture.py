"""Draw docs/demo.svg from a real run of the demo: `python docs/make_picture.py`.

It shows what the commands write to a terminal; of `torusrun watch`, which redraws the screen, one moment and the end.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from html import unescape
from pathlib import Path
from textwrap import dedent

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.text import Text

from tests.unit.terminals import ENTERED, HOME, LEFT, Terminal

DOCS = Path(__file__).resolve().parent
DEMO = "examples/digits.yaml"
COLUMNS, LINES = 96, 21
LIMIT_S = 300.0
MOMENT = 0.7  # of the screens with a table of nodes
ENTRY = "import sys; from torusrun.orchestrator.cli.main import main; sys.exit(main(sys.argv[1:]))"

CHARACTER, LINE, ASCENT = 12.2, 24.4, 20.0  # rich's sizes in an SVG
OVERLAP = 1.0  # of areas in neighbouring lines, between which a hair would be seen
BLOCKS = " ▁▂▃▄▅▆▇█"
FORMAT = dedent("""\
    <svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 20px; }}
    .{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
    {styles}
    </style>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
    </svg>
    """)  # rich's own loads a font from the internet, and cuts lines


def written(command: str, home: str, columns: int = COLUMNS, lines: int = LINES) -> str:
    """All that `torusrun COMMAND` writes to a terminal. Raises AssertionError if it fails."""
    _, *words = shlex.split(command)
    places = {"HOME": home, "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}
    with Terminal(ENTRY, *words, columns=columns, lines=lines, **places) as terminal:
        code = terminal.ended(LIMIT_S)
    assert code == 0, f"{command}: it ended with {code}: {terminal.written}"
    return terminal.written.replace(home, "~")


def text(written: str) -> list[Text]:
    """What stays on the terminal, with its colours; of a line that was redrawn, the last state."""
    usual = re.sub(f"{re.escape(ENTERED)}.*{re.escape(LEFT)}", "", written, flags=re.DOTALL)
    lines = [line.rpartition("\x1b[2K")[2] for line in usual.replace("\r", "").rstrip().split("\n")]
    return _without_empty(AnsiDecoder().decode("\n".join(lines)))


def screens(written: str) -> list[list[Text]]:
    """What filled the whole screen, one after the other."""
    whole = written.partition(ENTERED)[2].partition(LEFT)[0]
    found = (_without_empty(AnsiDecoder().decode(screen.replace("\r", ""))) for screen in whole.split(HOME))
    return [lines for lines in found if lines]


def _without_empty(lines: Iterable[Text]) -> list[Text]:
    """Lines without spaces at their ends; empty ones in a row become one, and those around all are left out."""
    found: list[Text] = []
    for line in lines:
        line.rstrip()
        if line.plain or (found and found[-1].plain):
            found.append(line)
    return found if not found or found[-1].plain else found[:-1]


def typed(command: str) -> Text:
    return Text(f"$ {command}", "bold")


def demo(home: str) -> list[list[list[Text]]]:
    """The demo as its user sees it: for each screen of `watch`, the lines before it, its own, and those after it."""
    submit, watch = f"torusrun submit {DEMO}", "torusrun watch last"
    submitted, watched = written(submit, home), written(watch, home)
    before = [typed(submit), *text(submitted), typed(watch), Text("")]
    after = [Text(""), *text(watched)]
    return [[before, screen, after] for screen in screens(watched)]


def moment(found: Sequence[list[list[Text]]]) -> list[Text]:
    """The lines of the picture: a screen on which the run works and its nodes have reported."""
    at_work = [one for one in found if "RUNNING" in one[1][0].plain and any("CPU" in line.plain for line in one[1])]
    assert at_work, "no screen shows a running run and its nodes"
    return [line for part in at_work[int(MOMENT * (len(at_work) - 1))] for line in part]


def drawn(lines: Sequence[Text], columns: int = COLUMNS) -> str:
    """A terminal with these lines as SVG. Raises AssertionError if a line is too long."""
    long = [line.plain for line in lines if line.cell_len > columns]
    assert not long, f"these are longer than {columns} columns: {long}"
    console = Console(record=True, width=columns, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for line in lines:
        console.print(line, highlight=False, no_wrap=True)
    svg = console.export_svg(title="torusrun", code_format=FORMAT, unique_id="t")
    svg = re.sub(r"<text [^>]*>\n</text>", "", re.sub(r' clip-path="[^"]*"', "", svg))
    return re.sub(r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+">(.*?)</text>', _blocks, svg)


def _blocks(found: re.Match[str]) -> str:
    """The same text with its block characters as areas, which leave no gaps between lines in any font."""
    style, left, bottom, content = (
        found[1],
        float(found[2]),
        float(found[3]) + LINE - ASCENT + OVERLAP,
        unescape(found[4]),
    )
    areas = [(column, BLOCKS.index(char)) for column, char in enumerate(content) if char in BLOCKS[1:]]
    if not areas:
        return found[0]
    path = "".join(
        f"M{left + column * CHARACTER:.1f} {bottom:.1f}v{-LINE * level / 8 - OVERLAP:.1f}h{CHARACTER}V{bottom:.1f}z"
        for column, level in areas
    )
    other = re.sub(f"[{BLOCKS[1:]}]", " ", content).rstrip()
    words = (
        f'<text class="{style}" x="{found[2]}" y="{found[3]}">{other.replace(" ", "&#160;")}</text>' if other else ""
    )
    return f'{words}<path class="{style}" d="{path}"/>'


def lines_of(svg: str) -> list[str]:
    """The texts of a picture, line by line, without curves."""
    rows: dict[float, list[tuple[float, str]]] = {}
    matrix = svg.partition('-matrix">')[2]
    for x, y, content in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', matrix):
        rows.setdefault(float(y), []).append((float(x), unescape(content).replace("\xa0", " ")))
    return [_joined(sorted(row)) for _, row in sorted(rows.items())]


def _joined(parts: Sequence[tuple[float, str]]) -> str:
    line = ""
    for x, part in parts:
        line = line.ljust(round(x / CHARACTER)) + part
    return line.rstrip()


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        (DOCS / "demo.svg").write_text(drawn(moment(demo(home))))


if __name__ == "__main__":
    main()
