"""Values that a spec holds as text, such as durations and sizes: their form, their meaning and their limits.

A field of a dataclass has the type `Annotated[float, DURATION]`. The reader calls `parse` on the text of the file. The
JSON schema takes `pattern` and `means`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torusrun.training.recipe.key import Limits as Limits

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BINARY_BYTES = {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}
DECIMAL_BYTES = {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)}
UNITS_BYTES = {"B": 1, **BINARY_BYTES, **DECIMAL_BYTES}
TIMES = "write 90s, 10m, 1h30m, 2d or HH:MM:SS"
RATES = "write it as 12.5GB/s or 100Gbit/s"
NUMBER = r"[0-9]+(?:\.[0-9]+)?"
GRID_PATTERN = r"(auto|[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){0,2})"
AUTO: tuple[int, ...] = ()  # a grid that torusrun chooses for the hosts
CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # in [...] of a pattern: characters that end a line or move a cursor
LONGEST_LINE = 4000  # characters
LONGEST_VALUE = 30_000  # characters; Linux allows no variable of more than 128 KiB
LONGEST_NUMBER = 40  # characters, unit included


@dataclass(frozen=True)
class Kind:
    """A kind of value. `parse` reads the value from text; `write` is the inverse.

    The message of a ValueError of `parse` explains the right form.
    """

    means: str
    pattern: str
    parse: Callable[[str], Any]
    write: Callable[[Any], str] = str


# More than any machine needs, and small enough that no computation with them overflows or takes too long.
DURATIONS_S = Limits(at_least=0.001, at_most=10 * 366 * 86400)
SIZES_BYTES = Limits(at_least=0, at_most=1e18)
RATES_BYTES_PER_S = Limits(at_least=1, at_most=1e18)
SHARES = Limits(at_least=1e-6, at_most=1e6)
EXPIRIES_S = Limits(at_least=1, at_most=366 * 86400)
NODES = Limits(at_least=1, at_most=100_000)
PER_NODE = Limits(at_least=1, at_most=1024)
NONE_OR_MORE = Limits(at_least=0, at_most=1024)
MICROSECONDS = Limits(at_least=0, at_most=1e12)
RANKS = Limits(at_least=1, at_most=10_000_000)
COUNTS = Limits(at_least=0, at_most=10**15)
SPREADS = Limits(at_least=0, at_most=10)
PRICES = Limits(at_least=0, at_most=1e6)


def text_kind(
    means: str, pattern: str, example: str, value: Callable[[str], Any] = str, write: Callable[[Any], str] = str
) -> Kind:
    """Text that matches `pattern` from end to end, and its value; `example` explains its form."""

    def parse(text: str) -> Any:
        if (value is not str and len(text) > LONGEST_NUMBER) or not re.fullmatch(pattern, text):
            raise ValueError(f"is not {means}; {example}")
        return value(text)

    return Kind(means, f"^{pattern}$", parse, write)


def _line(means: str, start: str = "", why: str = "") -> Kind:
    """A line with a pattern for its start, and a rule about that."""
    rule = f"it must not {why}be empty, be longer than {LONGEST_LINE} characters, or hold line breaks or control"
    return text_kind(means, rf"{start}[^{CONTROL}]{{1,{LONGEST_LINE}}}", f"{rule} characters")


def _value(means: str, plural: str) -> Kind:
    """Text that a program can get from Linux."""
    rule = f"it must hold at most {LONGEST_VALUE} characters and no NUL character: Linux gives a program no other"
    return text_kind(means, rf"[^\x00]{{0,{LONGEST_VALUE}}}", f"{rule} {plural}")


def whole(text: str) -> int:
    """'12' or '-3' as a number. Raises ValueError for all other text, also for digits that are not ASCII."""
    if not re.fullmatch(r"-?[0-9]{1,30}", text):
        raise ValueError(text)
    return int(text)


def decimal(text: str) -> float:
    """'0.5' or '1e-4' as a number. Raises ValueError for all other text, also for nan and inf."""
    if len(text) > LONGEST_NUMBER or not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError(text)
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number


def _seconds(text: str) -> float:
    if ":" in text:
        hours, minutes, rest = map(int, text.split(":"))
        total = float(hours * 3600 + minutes * 60 + rest)
    else:
        total = sum(float(n) * UNITS_S[u] for n, u in re.findall(r"([0-9.]+)([smhd])", text))
    if total <= 0:
        raise ValueError(f"must be more than 0; {TIMES}")
    return DURATIONS_S.checked(total, "seconds")


def regular(text: str) -> str:
    """The text itself. Raises ValueError unless it is a regular expression."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


def expression(text: str) -> str:
    """The text itself. Raises ValueError unless it is a regular expression with a named group."""
    if not re.compile(regular(text)).groupindex:
        raise ValueError("has no named group; write one for each value, as in 'loss=(?P<loss>\\S+)'")
    return text


def _bytes(text: str) -> int:
    number, unit = re.findall(r"[0-9.]+|[A-Za-z]+", text)
    return int(SIZES_BYTES.checked(float(number) * UNITS_BYTES[unit], "bytes"))


def _bytes_per_s(text: str) -> float:
    number, unit = re.findall(r"[0-9.]+|[A-Za-z]+", text.removesuffix("/s"))
    factor = UNITS_BYTES[unit.replace("bit", "B")] / (8 if unit.endswith("bit") else 1)
    return RATES_BYTES_PER_S.checked(float(number) * factor, f"bytes per second; {RATES}")


# The variables that a user may set: none of bash, which runs the job's script, and none of torchrun.
# bash(1), "Shell Variables": read-only, changed by bash itself, or changing how bash reads the next lines. All names
# that begin with BASH are reserved as well: every bash first runs the file BASH_ENV.
OF_BASH = (
    "_", "COMP_WORDBREAKS", "DIRSTACK", "ENV", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "FUNCNEST",
    "GROUPS", "HISTCMD", "HISTFILE", "IFS", "LINENO", "MAPFILE", "OLDPWD", "OPTARG", "OPTERR", "OPTIND", "PIPESTATUS",
    "POSIXLY_CORRECT", "PPID", "PWD", "RANDOM", "REPLY", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID",
)  # fmt: skip
# Each rank gets these with its own values (run/program/what_runs.py): a value of the user would never arrive.
OF_RANKS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "MASTER_ADDR", "MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
)  # fmt: skip
LONGEST_VARIABLE = 200  # characters
RESERVED = rf"(?:BASH.*|{'|'.join(OF_BASH)})$"
OWN = "[Tt][Oo][Rr][Uu][Ss][Rr][Uu][Nn]_"
GIVEN = rf"(?:{'|'.join(OF_RANKS)})$"
VARIABLE_PATTERN = rf"^(?!{RESERVED})(?!{GIVEN})(?!{OWN})[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST_VARIABLE - 1}}}$"


def variable(name: str) -> str:
    """`name` unchanged. Raises ValueError if it is not a valid name, or is reserved."""
    if not re.fullmatch(rf"[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST_VARIABLE - 1}}}", name):
        raise ValueError(
            "is not an environment variable's name; use letters, digits and '_', beginning with a letter, at most "
            f"{LONGEST_VARIABLE}"
        )
    if re.match(RESERVED, name):
        raise ValueError("belongs to bash, which runs the job's script; choose another name")
    if re.match(GIVEN, name):
        raise ValueError("is set by torusrun for each rank, as by torchrun; leave it out")
    if re.match(OWN, name):
        raise ValueError("belongs to torusrun, as every name that begins with TORUSRUN_; choose another name")
    return name


def share(text: str) -> float:
    """'1/3' or '0.5' as a number above 0."""
    match = re.fullmatch(rf"({NUMBER}(?:e-?[0-9]+)?)(?:/([0-9]+))?", text) if len(text) <= LONGEST_NUMBER else None
    if not match or not float(match[1]) or (match[2] and not int(match[2])):
        raise ValueError("is not a share; write it as 1/3 or 0.5, above 0")
    return SHARES.checked(float(match[1]) / int(match[2] or 1), "; write it as 1/3 or 0.5")


DURATION = text_kind(
    "a duration", rf"([0-9]+:[0-5][0-9]:[0-5][0-9]|({NUMBER}[smhd])+)", TIMES, _seconds, lambda s: f"{s:.6f}s"
)
EXPIRY = text_kind(
    "a duration of at most a year",
    DURATION.pattern.strip("^$"),
    TIMES,
    lambda text: EXPIRIES_S.checked(_seconds(text), "seconds"),
    DURATION.write,
)
SIZE = text_kind(
    "a size",
    rf"{NUMBER} ?(B|[KMGT]iB|[kMGT]B)",
    f"write a number and one of {', '.join(UNITS_BYTES)}, as in 60GiB",
    _bytes,
    lambda n: f"{n}B",
)
RATE = text_kind(
    "a bandwidth", rf"{NUMBER} ?([kMGT]?bit|B|[KMGT]iB|[kMGT]B)/s", RATES, _bytes_per_s, lambda r: f"{r:.6f}B/s"
)
SHARE = Kind("a share", rf"^{NUMBER}(e-?[0-9]+)?(/[0-9]+)?$", share, repr)
GRID = text_kind(
    "a grid",
    GRID_PATTERN,
    "write auto, 8 (8 ranks in one group), 4x2 (2 rows of 4 ranks) or 4x2x3 (3 groups of these)",
    lambda text: AUTO if text == "auto" else tuple(map(int, text.split("x"))),
    lambda dims: "x".join(map(str, dims)) or "auto",
)
UMASK = text_kind(
    "a umask",
    r"0?0[2367][2367]",
    "write 077 (only you may read), 027 (your group, too) or 022 (everybody): you keep all rights, and nobody else "
    "may write",
    lambda text: int(text, 8),
    lambda mask: f"{mask:03o}",
)
seconds: Callable[[str], float] = DURATION.parse
bytes_: Callable[[str], int] = SIZE.parse
grid: Callable[[str], tuple[int, ...]] = GRID.parse
NAME = text_kind(
    "a name",
    r"[A-Za-z][A-Za-z0-9._-]{0,62}",
    "use letters, digits, '.', '_' and '-', beginning with a letter, at most 63",
)
VARIABLE = Kind("an environment variable's name", VARIABLE_PATTERN, variable)
GPU_TYPE = text_kind(
    "a type of GPUs", r"[A-Za-z0-9][A-Za-z0-9_.+-]*", "write it as the scheduler does, as in v100 or a100_3g.20gb"
)
SCHEDULER = text_kind(
    "a scheduler",
    r"[a-z][a-z0-9_]*|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*",
    "use one of the known names, or package.module:Class",
)
BIND = text_kind(
    "a bind",
    rf"/[^:,{CONTROL}]{{0,4000}}(:/[^:,{CONTROL}]{{0,4000}})?(:(ro|rw))?",
    "write /host, /host:/inside or /host:/inside:ro",
)
CPUS = text_kind("numbers of CPUs", r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*", "write them as 0-19,40-59")
ARCHITECTURE = text_kind(
    "a GPU architecture", r"(sm_[0-9]{2,3}[a-z]?|gfx[0-9a-f]{3,4})", "write it as sm_70, or as gfx90a for AMD"
)
REGULAR = Kind("a regular expression", "", regular)
URL_PATH = text_kind("the path of a URL", r"/[!-~]{0,1000}", "begin it with '/', as in /health, without blanks")
EXPRESSION = Kind("a regular expression with named groups", r"\(\?P<[A-Za-z_]", expression)
LINE = _line("one line of text")
SHELL = _line("a line of shell", rf"(?![^\S{CONTROL}]*#)", "begin with '#', as directives of schedulers do, ")
OPERAND = _line("one line of text", "(?!-)", "begin with '-', as options do, ")
VALUE = _value("an environment variable's value", "values")
ARGUMENT = _value("an argument of a program", "arguments")
HOST = text_kind(
    "a host for ssh",
    r"([A-Za-z0-9_][A-Za-z0-9._-]{0,63}@)?[A-Za-z0-9_][A-Za-z0-9._-]{0,252}(:[0-9]{1,5})?",
    "write it as login.example, me@login.example or a Host of ~/.ssh/config",
)
PLACEHOLDERS = ("nodes", "ranks", "ranks_per_node", "cpus_per_rank", "cpus", "gpus", "account")
ASK = text_kind(
    "a request in the scheduler's words",
    rf"([^{{}}{CONTROL}]|\{{(" + "|".join(PLACEHOLDERS) + rf")\}}){{1,{LONGEST_LINE}}}",
    f"write one line; braces may hold only these: {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}",
)
