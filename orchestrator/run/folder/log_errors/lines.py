"""Lines of logs without what is drawn around them: colours, progress bars, boxes, and the prefixes of launchers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

TRACEBACK = "Traceback (most recent call last)"
LONGEST_LINE = 4000  # characters
ESCAPED, AFTER_JSON = re.compile(r"\\r?\\n|\\n"), re.compile(r'(\\n)*"(, "\w+": .*)?[}\]]*\s*$')
COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\].*?(?:\x07|\x1b\\)|\x1b[@-_]")
LONGEST_BAR = 500  # characters; in longer text the search would take long
# tqdm's bar, with a total or without: the next line of the program may follow it without a line break.
BAR = re.compile(r"^.{0,200}?\d+%\|.*?\| *\S+/\S+ \[\d[^\]]*\]|^.{0,200}?\d+\w+ \[\d\d:\d\d, [^\]]*\]")
ROW = re.compile(r"[│┃║](.*?)[│┃║]?\s*$")  # a row of a box, as rich draws tracebacks
EDGE = re.compile(r"[╭╰┏┗╔╚┌└]")
WHO = (
    r"\[(?:[\w.@-]+@)?\d+,\d+\](?:<std(?:err|out)>)?: ?",  # mpirun --tag-output, PRRTE: [1,0]<stderr>:
    r"\[\d+\]<std(?:err|out)>: ?",  # horovodrun
    r"<std(?:err|out)>: ?",
    r"\[[A-Za-z]\w*?\d+\]: ?",  # PyTorch's [rank0]: and torchrun --tee's [default0]:
    r"\[\d+\] (?=\S|  )",  # Hydra -prepend-rank
    r"\[[A-Za-z][\w.-]*(?::\d+)+\] +(?=\S)",  # own messages of Open MPI and UCX: [node1:4242]
    r" {0,3}\d{1,5}: ",  # srun --label
    r"\(\w[\w.:]*(?:, | )(?:pid|ip)=[^)]*\) ",  # Ray
)
WHEN = (
    r"\[[EF]\d{4} [\d:.]+ +\S+:\d+\] ?",  # glog, as in PyTorch's C++
    r"[EF]\d{4} [\d:.]+ +\d+ \S+:\d+\] ?",
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:? ?",
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}(?=[<\[])",  # mpirun --timestamp-output
)
PREFIX = re.compile(rf"(?P<who>{'|'.join(WHO)})|{'|'.join(WHEN)}")
MOST_PREFIXES = 4


def parts(lines: Iterable[str]) -> Iterator[str]:
    """Each line that is not blank; of a line with carriage returns, or with a traceback as JSON, each part of it."""
    for line in lines:
        begin, traceback, rest = line.partition(TRACEBACK)
        text = f"{begin}{traceback}{ESCAPED.sub(chr(13), AFTER_JSON.sub('', rest))}" if "\\n" in rest else line
        for part in text.split("\r") if "\r" in text else (text,):
            if part.strip():
                yield part[:LONGEST_LINE]


def bare(line: str) -> tuple[str, str]:
    """(the prefixes that name the process, the text without prefixes, colours, boxes and a bar before it).

    A row of a box is indented, as the frames of a traceback are.
    """
    text = COLOURS.sub("", line) if "\x1b" in line else line
    if "[" in text and ("%|" in text or "/s" in text) and (bar := BAR.match(text, 0, LONGEST_BAR)):
        text = text[bar.end() :].lstrip() or text
    who = ""
    for _ in range(MOST_PREFIXES):
        prefix = PREFIX.match(text)
        if not prefix:
            break
        who += prefix["who"] or ""
        text = text[prefix.end() :]
    if row := ROW.match(text):
        return who, f"  {row[1].strip()}"
    return who, f"  {text}" if EDGE.match(text) and TRACEBACK not in text else text
