"""Checks between the keys of a run that has a command, or its own code."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.run import NO_CODE, RunSpec
from torusrun.training.recipe.near import did_you_mean

NEITHER = (
    "there is neither 'train' nor 'command'; add 'train: {data: digits}' for torusrun's training, or "
    "'command: [python, train.py]' for a program of yours"
)
OF_CODE = ("code", "code_limit")
OF_A_COMMAND = ("stop", "checkpoints", "exit_codes", "metrics")
GROUPS = ("step", "total_steps", "epoch", "loss", "accuracy", "lr")  # of metrics.pattern
LONGEST_PATTERN = 1000  # characters
STARTS_RANKS = re.compile(  # where a shell or a launcher's user names the program, not an argument of another
    r"(?:^|[;&|(]\s*|\bexec |\s-l?c )(?:env )?(?:\w+=\S* )*(?:\S*/)?(torchrun|deepspeed|accelerate launch)(?![\w./-])"
    r"|\s-m (torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch)\b"
)
OWN_MEETING = re.compile(r"\s--(standalone|rdzv)|LOCAL_RANK|--num_processes[ =]1\b")


def misfits(run: RunSpec, written: Collection[str], folder: Path) -> Iterator[tuple[str, str]]:
    """(key, error) for the keys of a command. The run's file is in `folder`, and has the keys `written`."""
    if run.command or run.roles or run.train.needs_code:
        if run.code != NO_CODE and not (code := absolute(run.code or ".", folder)).is_dir():
            yield "code", f"'code': {code} is not a folder; name the folder of the code, or write 'code: none'"
    else:
        for key in OF_CODE:
            if key in written:
                yield key, f"{key!r} belongs to a 'command', or to a 'train' with a function of yours (module:function)"
    if not run.command:
        yield from _without_command(run, written)
        return
    if any(key == "train" or key.startswith("train.") for key in written):
        yield "train", "'train' and 'command' exclude each other: the ranks run one of them; leave one out"
    if run.program != "train":
        yield "program", f"'program: {run.program}' and 'command' exclude each other; leave one out"
    if not run.command[0]:
        yield "command", "'command' begins with an empty word; its first word is the program, as in [python, train.py]"
    if _leaves_the_code(run.checkpoints.folder or "ckpt"):
        yield "checkpoints.folder", "'checkpoints.folder' must be a folder below the code, or an absolute path"
    yield from _of_pattern(run.metrics.pattern or "")
    codes = run.exit_codes
    named = (*codes.done, *codes.later, *codes.never)
    if twice := {code for code in named if named.count(code) > 1}:
        yield "exit_codes", f"'exit_codes': {min(twice)} means two things; name each code once"


def ranks_of_its_own(run: RunSpec, ranks_per_node: int) -> str:
    """The program of a command that starts the ranks of a node itself, if there are several of it on each; else ''.

    All of them would open the same port, and count their workers alike, unless their options name another one.
    """
    words = " ".join(run.command)
    found = STARTS_RANKS.search(words)
    if ranks_per_node < 2 or not found or OWN_MEETING.search(words):
        return ""
    return found[1] or found[2]


def _of_pattern(pattern: str) -> Iterator[tuple[str, str]]:
    key = "metrics.pattern"
    if len(pattern) > LONGEST_PATTERN:
        yield key, f"{key!r} must have at most {LONGEST_PATTERN} characters, and has {len(pattern)}"
    for name in re.compile(pattern).groupindex:
        if name not in GROUPS:
            hint = did_you_mean(name, GROUPS)
            yield key, f"{key!r} has an unknown group {name!r}{hint} (groups: {', '.join(GROUPS)})"


def _leaves_the_code(folder: str) -> bool:
    """Whether a relative path is the code's folder itself, or is outside of it."""
    return not os.path.isabs(folder) and os.path.normpath(folder).split(os.sep)[0] in (os.curdir, os.pardir)


def _without_command(run: RunSpec, written: Collection[str]) -> Iterator[tuple[str, str]]:
    if "train" not in written and run.program == "train":
        yield "", NEITHER
    for key in OF_A_COMMAND:
        if key in written:
            yield key, f"{key!r} belongs to a 'command', and this run has none"
