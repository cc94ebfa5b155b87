"""The README's picture shows what the demo prints today: the same lines, and nearly the same loss and accuracy."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from docs.make_picture import DOCS, demo, lines_of

UNITS = r"\b(s|min|h)\b"


def masked(line: str) -> str:
    """A line without what differs from run to run: ids, numbers, bars, and the spaces that fill columns."""
    line = re.sub(r"digits-[\w-]+", "RUN", line)
    line = re.sub(r"[━╸╺\u2581-\u2588]+", "", line)
    line = re.sub(r"\d[\d.,]*[kKMGT]?", "0", line)
    return " ".join(re.sub(UNITS, "TIME", line).split())


def found(lines: list[str], name: str) -> float:
    """The number beside a name in the table at the end."""
    return float(re.findall(rf"^{name}\s+([\d.]+)", "\n".join(lines), re.MULTILINE)[-1])


def test_the_picture_of_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    pictured = lines_of((DOCS / "demo.svg").read_text())
    (host,) = {name for line in pictured for name in re.findall(r"^ranks\s+\d+ on (\S+)$", line)}
    printed = [[line.plain for part in one for line in part] for one in demo(str(tmp_path))]
    known = {masked(line.replace(socket.gethostname(), host)) for lines in printed for line in lines}
    gone = [line for line in pictured if masked(line) not in known]
    assert not gone, "torusrun does not print these any more; run `make pictures`:\n" + "\n".join(gone)
    for name in ("loss", "test accuracy"):  # another CPU has other last digits
        today, then = found(printed[-1], name), found(pictured, name)
        assert abs(today - then) < 0.03 * today, f"{name}: {then} in the picture, {today} today; run `make pictures`"
