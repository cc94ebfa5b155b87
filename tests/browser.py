"""Open pages of `torusrun report` in headless Chromium: `python -m tests.browser [FOLDER for screenshots]`.

It fails for an error on the console, and for a page that scrolls sideways at one of WIDTHS.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape, unescape
from itertools import product
from pathlib import Path

from PIL import Image

from tests.unit import test_report_page as pages
from tests.unit.run_folders import make, write_specs
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.show.page.document import document

CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
WIDTHS = (360, 390, 820, 1440)  # the narrowest phone, a usual one, a tablet, a screen
LEAST_WIDTH = 500  # Chromium makes no narrower window
HEIGHT = 4000
MEASURE = """<script>onload = () => document.body.textContent = "MEASURED" + JSON.stringify(
  [...document.querySelectorAll("iframe")].map(each => each.contentDocument.documentElement.scrollWidth))</script>"""


def made(home: Path) -> Iterator[tuple[str, str]]:
    """(name, page) of a run that failed with long and hostile texts, of several runs, and of a sweep."""
    spec = write_specs(home)
    failed = make(spec, End(State.FAILED, f"rank 3 of {'x' * 300} said {pages.HOSTILE}", cause=Cause.PROGRAM))
    failed.attempt(1).rank_log(0).write_text(f"Traceback (most recent call last):\nValueError: {'word' * 200}\n")
    pages.reported(failed, r0=0.1, r1=0.1, r2=0.1, r3=0.19)
    yield "failed", document([pages.facts(failed)])
    spec.write_text(spec.read_text().replace("train: {}", "train: {batch: 512}"))
    runs = [pages.facts(make(spec, pages.DONE)) for _ in range(4)]
    yield "compared", document([pages.facts(failed), *runs])
    yield "swept", document(pages.swept(runs[0]))


def chromium(page: Path, *options: str) -> str:
    """What Chromium prints about a page. Raises AssertionError for a message on the console."""
    said = subprocess.run([*CHROMIUM, *options, page.as_uri()], capture_output=True, text=True, timeout=120)
    found = [line for line in said.stderr.splitlines() if "CONSOLE" in line]
    assert not found, "the page writes to the console:\n" + "\n".join(found)
    return said.stdout


def check(name: str, html: str, folder: Path) -> None:
    frames = [f'<iframe srcdoc="{escape(html)}" style="width:{width}px;height:900px"></iframe>' for width in WIDTHS]
    page = folder / f"{name}.html"
    page.write_text(f"<!doctype html><style>iframe {{border: 0}}</style>{''.join(frames)}{MEASURE}")
    found = re.search(r"MEASURED(\[.*?\])", unescape(chromium(page, "--dump-dom")))
    assert found, f"Chromium did not show {page}"
    widths = dict(zip(WIDTHS, json.loads(found[1]), strict=True))
    too_wide = {width: shown for width, shown in widths.items() if shown > width}
    assert not too_wide, f"{name}: the page scrolls sideways: {too_wide} (window: content)"
    print(f"{name}: {len(html):,} bytes, widths {widths}")


def screenshot(html: str, width: int, height: int, scheme: str, file: Path) -> None:
    """A picture of the beginning of a page in a window of this size; `scheme` is 'light' or 'dark'."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "frame.html")
        frame = f'style="border:0;width:{width}px;height:{height}px"'
        page.write_text(f'<!doctype html><body style="margin:0"><iframe srcdoc="{escape(html)}" {frame}>')
        size = f"--window-size={max(width, LEAST_WIDTH)},{height}"
        number = ("dark", "light").index(scheme)
        chromium(page, size, f"--blink-settings=preferredColorScheme={number}", f"--screenshot={file}")
    with Image.open(file) as whole:
        whole.crop((0, 0, width, height)).save(file)


def pictures(name: str, html: str, folder: Path) -> None:
    """Screenshots in every width, light and dark."""
    for width, scheme in product(WIDTHS, ("light", "dark")):
        screenshot(html, width, HEIGHT, scheme, folder / f"{name}-{width}-{scheme}.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        os.umask(0o077)
        for name, html in made(Path(folder)):
            check(name, html, Path(folder))
            if len(sys.argv) > 1:
                pictures(name, html, Path(sys.argv[1]))


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(str(error))
    except FileNotFoundError as error:
        sys.exit(f"{error}\nOn Debian, `apt-get install chromium` installs it.")
