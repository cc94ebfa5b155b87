"""Describes the end of a PBS job from its exit status: the event, and the host."""

from __future__ import annotations

from collections.abc import Sequence
from signal import Signals

from torusrun.orchestrator.base.states import State, Status
from torusrun.training.counted import first_of

NOT_STARTED = "its script could not be started (PBS's log on {first} says why)"
DAEMON = "the job ended as PBS's daemon on {first} was started again"
MOST_HOSTS = 4

# Negative exit statuses are the server's own: src/include/job.h of OpenPBS, JOB_EXEC_...
SERVERS_WORD = {
    -1: (State.FAILED, NOT_STARTED),
    -2: (State.FAILED, NOT_STARTED),
    -3: (State.FAILED, "it could not be started, and was to be tried again"),
    -4: (State.NODE_FAIL, DAEMON),
    -5: (State.NODE_FAIL, DAEMON),
    -6: (State.NODE_FAIL, DAEMON),
    -10: (State.FAILED, "its user is not known on {first}"),
    -14: (State.NODE_FAIL, "it lost {others}"),
    -17: (State.FAILED, "a hook of the site refused it"),
    -19: (State.CANCELLED, "a hook of the site deleted it"),
    -20: (State.NODE_FAIL, "it lost {first}"),
    -24: (State.FAILED, "it used more processors than it had asked for"),
    -25: (State.FAILED, "it used more processors than it had asked for"),
    -26: (State.OOM, "it used more virtual memory than it had asked for"),
    -27: (State.OOM, "it used more memory than it had asked for"),
    -28: (State.TIMEOUT, "it used more processor time than it had asked for"),
    -29: (State.TIMEOUT, "it reached its time limit"),
}


def server_ended(code: int, comment: str, hosts: Sequence[str]) -> Status:
    """The end that the server itself recorded, as a negative exit status; `hosts` are the job's, in order."""
    if code not in SERVERS_WORD:
        return Status(
            State.FAILED, f"PBS ended it for a reason of its own (exit status {code}): {comment}", tuple(hosts)
        )
    state, words = SERVERS_WORD[code]
    happened = words.format(first=_first(hosts), others=_others(hosts))
    return Status(state, f"PBS says that {happened} (exit status {code})", tuple(hosts))


def exit_words(code: int) -> str:
    """A positive exit status in words: 256 plus a signal of the job's own shell, 128 plus that of a program in it."""
    number = code - 256 if code > 256 else code - 128
    if code <= 128 or number not in Signals._value2member_map_:
        return f"exit code {code}"
    whose = "its shell" if code > 256 else "a program in it"
    return f"that {whose} was ended by {Signals(number).name} (exit status {code})"


def _first(hosts: Sequence[str]) -> str:
    return f"its first node ({hosts[0]})" if hosts else "its first node"


def _others(hosts: Sequence[str]) -> str:
    """The nodes other than the first, in words; PBS does not report which of them it was."""
    others = list(hosts[1:])
    if len(others) == 1:
        return f"its other node ({others[0]})"
    return f"one of its other nodes ({first_of(others, MOST_HOSTS)})" if others else "a node other than its first"
