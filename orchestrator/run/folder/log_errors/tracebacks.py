"""Lines of logs without what is drawn around them (colours, bars, boxes, launchers' prefixes), and their tracebacks.

A traceback is everything from its start to the line that names the exception, for each process in the log apart.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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


MOST_BLOCKS = 20  # of a log: the newest
MOST_LINES = 500  # of a block
LINKS = re.compile(r"(During handling of the above|The above) exception|.*another exception occurred:$")
FRAME = re.compile(r'\s*File "[^"]*"(, line \d+(, in .*)?)?$')  # of a traceback; a stack of faulthandler has no comma
SYNTAX = re.compile(r'\s*File "[^"]*", line \d+$')  # a SyntaxError of the program itself has no other first line
GROUP = "Exception Group Traceback"
MARGIN = re.compile(r"\s*(?:\|(?: |$)|\+-.*$)")  # of a group's lines
MARKS = (TRACEBACK, 'File "', "exception")  # a line without them begins no traceback
ASCII_ROW = re.compile(r"\|.*\||\+-+\+$")  # of a box that rich draws without Unicode
LEARNED = re.compile(r"\S.{0,80}[:|\]] ?$")  # a prefix that only the first line of a traceback shows

Row = TypeVar("Row")


@dataclass
class Block(Generic[Row]):
    """A traceback: its rows, the exceptions that it names, and the line before it; `stream` has its prefixes.

    Exceptions that caused each other are in one block.
    """

    stream: str
    before: str = ""
    group: bool = False
    rows: list[Row] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """The last exception; of a group, the group and its exceptions; '' if the log ends before it."""
        if self.group and len(self.exceptions) > 1:
            return f"{self.exceptions[0]}: {'; '.join(self.exceptions[1:])}"
        return self.exceptions[-1] if self.exceptions else ""


@dataclass
class _Stream(Generic[Row]):
    block: Block[Row] | None = None
    goes_on: bool = False  # whether a line of the block follows
    linked: bool = False  # whether the next traceback belongs to the block
    fresh: bool = False  # whether the newest line named the exception

    def set(self, *, goes_on: bool = False, linked: bool = False, fresh: bool = False) -> None:
        self.goes_on, self.linked, self.fresh = goes_on, linked, fresh

    @property
    def waits(self) -> bool:
        """Whether the next line may belong to the block."""
        return self.goes_on or self.linked or self.fresh


class Tracebacks(Generic[Row]):
    """The newest tracebacks of the lines that are added."""

    def __init__(self) -> None:
        self._blocks: deque[Block[Row]] = deque(maxlen=MOST_BLOCKS)
        self._streams: dict[str, _Stream[Row]] = {}
        self._waiting: set[str] = set()
        self._learned: list[str] = []
        self._before = ""
        self._begun = False  # whether a line was not indented: before that, lines may be of a traceback that is cut off

    def add(self, line: str, row: Row) -> bool:
        """Add a line; whether it belongs to a traceback."""
        if self._waiting or any(mark in line for mark in MARKS):
            who, text = self._bare(line)
            stream = self._streams.setdefault(who, _Stream())
            inside = self._inside(stream, who, text, row)
            (self._waiting.add if stream.waits else self._waiting.discard)(who)
        else:
            text, inside = line, False
        self._begun = self._begun or not text[:1].isspace()
        if not inside and not text.isspace():
            self._before = text
        return inside

    def _bare(self, line: str) -> tuple[str, str]:
        who, text = bare(line)
        for prefix in self._learned:
            if text.startswith(prefix):
                return who + prefix, text[len(prefix) :]
        prefix, traceback, _ = text.partition(TRACEBACK)
        if traceback and LEARNED.match(prefix) and GROUP not in text:
            self._learned.append(prefix)
            return who + prefix, text[len(prefix) :]
        return who, text

    def _inside(self, stream: _Stream[Row], who: str, text: str, row: Row) -> bool:
        """Add a bare line to the block of its stream; whether it belongs to it."""
        block = stream.block
        if block and block.group and stream.waits and (margin := MARGIN.match(text)):
            self._follow(stream, block, text[margin.end() :], row)
        elif TRACEBACK in text or (not stream.goes_on and self._headless(stream, text)):
            if not (block and (stream.goes_on or stream.linked or (stream.fresh and TRACEBACK not in text))):
                block = stream.block = Block(who, bare(self._before)[1], GROUP in text)
                self._blocks.append(block)
            self._keep(block, row)
            stream.set(goes_on=True)
        elif block and LINKS.match(text):
            self._keep(block, row)
            stream.set(linked=True)
        elif block and stream.goes_on:
            self._follow(stream, block, text, row)
        else:
            if text.strip():
                stream.set()
            return False
        return True

    def _headless(self, stream: _Stream[Row], text: str) -> bool:
        """Whether a frame begins or continues a traceback: a cut one, one after its exception, or a SyntaxError's."""
        return bool(FRAME.match(text)) and (stream.fresh or not self._begun or bool(SYNTAX.match(text)))

    def _follow(self, stream: _Stream[Row], block: Block[Row], text: str, row: Row) -> None:
        self._keep(block, row)
        if TRACEBACK in text:
            stream.set(goes_on=True)
        elif stream.goes_on and text.strip() and not text[0].isspace() and not ASCII_ROW.match(text):
            block.exceptions.append(text.rstrip())
            stream.set(fresh=True)

    @staticmethod
    def _keep(block: Block[Row], row: Row) -> None:
        if len(block.rows) < MOST_LINES:
            block.rows.append(row)

    def taken(self, *, final: bool) -> list[Block[Row]]:
        """The tracebacks since the last call; unless `final` is set, without those that may continue."""
        streams = self._streams.values()
        waits = [] if final else [each.block for each in streams if each.block and (each.goes_on or each.linked)]
        ended = [block for block in self._blocks if not any(block is waiting for waiting in waits)]
        self._blocks = deque(waits, maxlen=MOST_BLOCKS)
        self._streams = {who: own for who, own in self._streams.items() if any(own.block is block for block in waits)}
        self._waiting &= self._streams.keys()
        return ended
