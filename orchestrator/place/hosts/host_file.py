"""Files with hosts, in the forms of launchers and schedulers: Open MPI, MPICH, DeepSpeed, PBS, Grid Engine, LSF, pdsh.

Only names and their order count: slots, users and queues are left out, and a name that is repeated, as once for each
rank, is one host.
"""

from __future__ import annotations

import ipaddress
import re

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.hostlist import MOST_HOSTS, expand, split

NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
ATTRIBUTE = re.compile(r"[A-Za-z_-]+=\S*")  # of Open MPI, MPICH and DeepSpeed, as in slots=4
GRID_ENGINE = re.compile(r"(\S+)\s+\d+\s+\S+@\S+\s+\S+")  # PE_HOSTFILE: host, slots, queue, processors
WORD = re.compile(r"(?:[^@:\[\]]+@)?(?P<hosts>.*?)(?::[0-9]+)?")  # user@host:slots


class WrongLine(SiteError):
    """A line that names no hosts; `number` counts from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


def hosts_of(text: str) -> list[str]:
    """The hosts of a file's text, each once, in its order. Raises WrongLine with the first mistake."""
    hosts: dict[str, None] = {}
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        try:
            hosts |= dict.fromkeys(_of_line(line.partition("#")[0].strip(), MOST_HOSTS - len(hosts)))
        except SiteError as error:
            raise WrongLine(number, str(error)) from None
    return list(hosts)


def _of_line(line: str, most: int) -> list[str]:
    if match := GRID_ENGINE.fullmatch(line):
        line = match[1]
    words = re.sub(r"\s*([,=])\s*", r"\1", line).split()
    if words and words[0].isdecimal():
        raise SiteError(f"{words[0]!r} is a number where a host should be")
    if words and ATTRIBUTE.fullmatch(words[0]):
        raise SiteError(f"{_short(words[0])!r} has no host before it")
    named = [word for word in words if not (ATTRIBUTE.fullmatch(word) or word.isdecimal())]
    if len(named) > 1 and _is_address(named[0]):
        raise SiteError(f"{_short(line)!r} is an address with its names, as in /etc/hosts; write one of them")
    hosts: list[str] = []
    for word in named:
        hosts += _of_word(word, most - len(hosts))
    return hosts


def _of_word(word: str, most: int) -> list[str]:
    """The hosts of a word without blanks, as in 'alice@n[1-2]:4,m1'."""
    hosts: list[str] = []
    for part in filter(None, split(word)):
        if ":" in part and _is_address(part):
            hosts.append(part)
            continue
        match = WORD.fullmatch(part)
        named = expand(match["hosts"], most - len(hosts)) if match else []
        if wrong := next((name for name in named or [part] if not NAME.fullmatch(name)), None):
            raise SiteError(f"{_short(wrong)!r} is not the name of a host")
        hosts += named
    return hosts


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}..."


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True
