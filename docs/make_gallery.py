"""Draw the pictures of docs/gallery.md from real runs: `python docs/make_gallery.py`.

It takes some minutes, and Debian's chromium. A run is cancelled, resumed, killed and resumed again; a sweep is run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from make_picture import DEMO, DOCS, drawn, text, typed, written
from PIL import Image
from rich.text import Text

from tests.browser import screenshot
from tests.waiting import until

GALLERY = DOCS / "gallery"
ROOT = DOCS.parent
COLUMNS, PLAN_COLUMNS = 110, 122
COLOURS = 256  # of a picture: it makes a file half as large
GAP = 16
LARGEST_BYTES = 200_000
PAGES = {"phone": (390, 1500, 1.0), "tablet": (820, 1300, 0.6), "desktop": (1440, 1420, 0.62)}  # width, height, scale
SWEEP = "--sweep train.optimizer.lr=0.02,0.1,0.5 --sweep train.batch=32,64"


def torusrun(*words: str, may_fail: bool = False) -> str:
    """What `torusrun WORDS` prints. Raises CalledProcessError if it fails and may not."""
    command = [sys.executable, "-m", "torusrun", *words]
    said = subprocess.run(command, cwd=ROOT, check=not may_fail, text=True, capture_output=True, timeout=300)
    return said.stdout


def step() -> int:
    return json.loads(torusrun("status", "last", "--json"))["runs"][0]["step"] or 0


def interrupted() -> str:
    """The id of a run with three attempts: the first is cancelled, a rank of the second is killed."""
    run = torusrun("submit", DEMO, "--set", "name=interrupted").split()[0]
    until(lambda: step() > 120, "step 120")
    torusrun("cancel", run)
    torusrun("watch", run, may_fail=True)
    torusrun("resume", run)
    until(lambda: step() > 260, "step 260")
    start = Path(os.environ["HOME"], "torusrun/runs", run, "attempts/2/ranks/0002.start.json")
    os.kill(json.loads(start.read_text())["pid"], signal.SIGKILL)
    torusrun("watch", run, may_fail=True)
    torusrun("resume", run, "--wait")
    return run


def swept() -> str:
    """The id of a sweep of six, whose last member is cancelled while it waits."""
    sweep = torusrun("submit", DEMO, "--set", "train.epochs=5", *SWEEP.split()).split()[0]
    torusrun("cancel", f"{sweep}.5", "--yes")
    torusrun("watch", sweep, may_fail=True)
    return sweep


def terminal(name: str, *commands: str, home: str, columns: int = COLUMNS) -> None:
    """A picture of commands and what they write."""
    parts = [[typed(command), *text(written(command, home, columns, 40)), Text("")] for command in commands]
    (GALLERY / f"{name}.svg").write_text(drawn(sum(parts, [])[:-1], columns))


def page(name: str, run: str, folder: Path) -> None:
    """The page about a run or a sweep in every width: light and dark, side by side, or below each other."""
    torusrun("report", run, "-o", str(folder / f"{name}.html"))
    html = (folder / f"{name}.html").read_text()
    for device, (width, height, scale) in PAGES.items():
        both = []
        for scheme in ("light", "dark"):
            file = folder / f"{name}-{device}-{scheme}.png"
            screenshot(html, width, height, scheme, file)
            both.append(Image.open(file).convert("RGB"))
        beside = device != "desktop"
        size = (2 * width + GAP, height) if beside else (width, 2 * height + GAP)
        joined = Image.new("RGB", size, "#8a94a0")
        joined.paste(both[0], (0, 0))
        joined.paste(both[1], (width + GAP, 0) if beside else (0, height + GAP))
        save(joined, GALLERY / f"{name}-{device}.png", scale)
    if name == "report":
        save(Image.open(folder / "report-desktop-light.png").convert("RGB"), DOCS / "report.png", 0.7)


def save(image: Image.Image, path: Path, scale: float) -> None:
    """Write a picture with few colours. Raises AssertionError if it is too large for the repository."""
    small = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < LARGEST_BYTES, f"{path}: {path.stat().st_size:,} bytes: show less of the page"


def main() -> None:
    GALLERY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        run, sweep = interrupted(), swept()
        terminal("status", "torusrun status", "torusrun status 'interrupted*' --long", home=home)
        terminal("sweep", "torusrun status digits --best accuracy", home=home)
        racks = "torusrun plan examples/racks/run.yaml --hosts examples/racks/hosts.txt"
        terminal("plan", racks, home=home, columns=PLAN_COLUMNS)
        page("report", run, Path(home))
        page("sweep-report", sweep, Path(home))


if __name__ == "__main__":
    main()
