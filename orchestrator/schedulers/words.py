"""The words of a job's request: a site's own with their numbers, names, directives, hosts; and arrays from tasks."""

from __future__ import annotations

import math
import os
import pwd
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.keys.kinds import CONTROL
from torusrun.orchestrator.keys.problems import shown

LONGEST_NAME = 200  # OpenPBS takes 230 characters, Grid Engine 511
DIGITS = 20  # more than any number in an id has


def filled(
    texts: Sequence[str], *, nodes: int, ranks_per_node: int, cpus_per_rank: int, gpus: int, account: str | None
) -> tuple[str, ...]:
    """A site's own words with a job's numbers in place of the `keys.kinds.PLACEHOLDERS`.

    Raises UserError for an account that would not remain one word in them.
    """
    if account and any("{account}" in text for text in texts) and (reason := not_plain(account)):
        raise UserError(f"'account': {account!r} {reason}")
    words = {
        "nodes": nodes,
        "ranks": nodes * ranks_per_node,
        "ranks_per_node": ranks_per_node,
        "cpus": ranks_per_node * cpus_per_rank,
        "cpus_per_rank": cpus_per_rank,
        "gpus": gpus,
        "account": account,
    }
    return tuple(text.format_map(words) for text in texts)


def not_plain(account: str) -> str | None:
    """Why `account` cannot be filled into a site's own words, whose quoting is unknown; None if it can."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]*", account):
        return None
    return (
        "is filled into the site's own words ({account}), and so may hold letters, digits and '_.@/-' only, "
        "beginning with a letter or digit"
    )


def fitting(name: str) -> str:
    """`name` with `_` in place of the characters that schedulers refuse; an acceptable name stays as it is.

    PBS refuses blanks, slashes and letters beyond ASCII, Grid Engine `:`, `@`, `\\`, `*`, `?` and a first digit.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    fit = re.sub(r"[^A-Za-z0-9_.+-]", "_", plain.strip())[:LONGEST_NAME]
    return fit if re.match("[A-Za-z]", fit) else f"job_{fit}"[:LONGEST_NAME]


def directives(prefix: str, options: Sequence[str], longest_bytes: int) -> list[str]:
    """The lines of a script that give `options`. Raises UserError for an option that is not one line or is too long."""
    for option in options:
        if re.search(f"[{CONTROL}]", option):
            raise UserError(f"{option!r}: a directive is one line, without line breaks and control characters")
        if len(option.encode()) > longest_bytes:
            raise UserError(f"{shown(option)}: this is too long for a directive, which may have {longest_bytes} bytes")
    return [f"{prefix} {option}" for option in options]


def counts(licenses: Sequence[str]) -> list[tuple[str, str]]:
    """(name, number) of licenses, as in matlab:2."""
    return [(name, number or "1") for name, _, number in (each.partition(":") for each in licenses)]


def clock(seconds: float) -> str:
    """A time limit as HH:MM:SS, rounded up; hours may exceed 24."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def user_name() -> str:
    """The user's name, by which schedulers know jobs; $LOGNAME may be another's. Raises SiteError if there is none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise SiteError(f"user {os.geteuid()} has no name on this machine: schedulers know jobs by one") from None


def printed_id(stdout: str, *forms: str) -> str:
    """The job's id among the lines that a submit command printed: the group of the first of `forms` that lines have.

    Sites print banners beside it. '' if no line is of a form, or if several have different ids.
    """
    for form in forms:
        ids = {match[1] for line in stdout.splitlines() if (match := re.fullmatch(form, line.strip()))}
        if ids:
            return ids.pop() if len(ids) == 1 else ""
    return ""


def listed_hosts(path: str) -> list[str]:
    """The first words of a file's lines, in order and each once. Raises SiteError if there are none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SiteError(f"{path}: the list of the job's hosts cannot be read: {error.strerror}") from None
    hosts = dict.fromkeys(line.split()[0] for line in lines if line.strip())
    if not hosts:
        raise SiteError(f"{path}: the list of the job's hosts is empty")
    return list(hosts)


def with_arrays(of_jobs: Mapping[str, Status], separator: str) -> dict[str, Status]:
    """The states by job id, and those of the arrays under their own ids: 7 for '7_3', and for waiting '7_[4-9%1]'.

    Schedulers list tasks in any order: squeue by their states.
    """
    tasks: dict[str, list[Status]] = {}
    for job_id in sorted(of_jobs, key=_numbers):
        array, _, task = job_id.partition(separator)
        if task:
            tasks.setdefault(array, []).append(of_jobs[job_id])
    return {**of_jobs, **{array: whole(*states) for array, states in tasks.items()}}


def _numbers(job_id: str) -> list[str]:
    """The numbers in an id, by which the tasks of an array are in order."""
    return [number.zfill(DIGITS) for number in re.findall("[0-9]+", job_id)]


def whole(*tasks: Status) -> Status:
    """The state of tasks or jobs in order: of a task that runs, else that waits, else of the last with hosts."""
    for state in (State.RUNNING, State.PENDING, State.UNKNOWN):
        if status := next((task for task in tasks if task.state is state), None):
            return status
    ran = [task for task in tasks if task.hosts]
    return ran[-1] if ran else tasks[-1]
