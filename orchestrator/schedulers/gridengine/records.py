"""Reads the end of a Grid Engine job from its records in qacct: its state, and in words the event and the host.

Sources: sge_status(5) and accounting(5) of Son of Grid Engine 8.1.9; records of a real Grid Engine (its tests);
Univa's and Altair's `deleted_by` from their manuals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from signal import SIGKILL

from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.base.states import State, Status

PROLOG_S = 60  # how long a site may prepare a job before its time begins to count
# The codes of `failed` of a job that ran to its end all the same: its exit status counts.
RAN = {0, 12, 13, 14, 15, 16}
AFTER = 100  # "assumedly after job": a signal ended it
LIMIT = 37
QDEL = ", by qdel or for lack of memory: the record does not say which"
# The meaning of the other codes, with the state if it is not just a failure. {host} is the record's host.
NOT_STARTED = "it could not be started on {host}"
MEANS = {
    **dict.fromkeys((1, 3, 4, 6, 7, 9, 11, 29, 31), (State.FAILED, NOT_STARTED)),
    38: (State.FAILED, NOT_STARTED),  # adding its supplementary group; from memory
    8: (State.FAILED, "the queue's prolog failed on {host}"),
    10: (State.FAILED, "its parallel environment could not be started on {host}"),
    17: (State.FAILED, "it was ended by a signal, from qdel perhaps"),
    18: (State.FAILED, "Grid Engine's process that monitors it on {host} died"),
    19: (State.NODE_FAIL, "{host}, or Grid Engine's daemon there, went down"),
    20: (State.FAILED, "Grid Engine's process that monitors it on {host} met an error"),
    21: (State.NODE_FAIL, "{host} no longer knew it, most likely after a restart"),
    24: (State.FAILED, "it was to continue on another host"),
    25: (State.LOST, "it was to run again, and was deleted before that, most likely"),
    26: (State.FAILED, "its output file could not be opened on {host}"),
    27: (State.FAILED, "its shell does not exist on {host}"),
    28: (State.FAILED, "its working directory does not exist on {host}"),
    30: (State.FAILED, "its script ended with exit code 100, which Grid Engine takes for an error"),
}

Record = Mapping[str, str]  # one record of qacct, of which only READ is kept
READ = {"jobnumber", "taskid", "pe_taskid", "hostname", "failed", "deleted_by", "exit_status", "ru_wallclock",
        "ru_minflt", "maxvmem", "category"}  # fmt: skip


def ended(records: Sequence[Record]) -> Status:
    """The end of a job by its records: those of its parallel tasks and earlier runs, then its own, which counts."""
    own = [record for record in records if record.get("pe_taskid", "NONE") == "NONE"] or records
    record = own[-1]
    state, meaning = _end(record)
    code, _, words = record.get("failed", "").partition(":")
    said = f"failed {code.strip()}, {words.strip()}" if words else f"exit status {_number(record, 'exit_status')}"
    hosts = dict.fromkeys(r["hostname"] for r in [record, *records] if "hostname" in r)
    return Status(state, f"{meaning} (Grid Engine: {said})" if meaning else f"Grid Engine says: {said}", tuple(hosts))


def _end(record: Record) -> tuple[State, str]:
    """(the state by a record, its meaning in words, '' if unknown)."""
    code, status = _number(record, "failed"), _number(record, "exit_status")
    if code == LIMIT:
        return _limit(record)
    if (by := record.get("deleted_by", "NONE")) != "NONE":  # Univa and Altair
        return State.CANCELLED, f"deleted by {by}"
    if code in MEANS:
        state, meaning = MEANS[code]
        return state, meaning.format(host=record.get("hostname", "its host"))
    if status > 128 and code == AFTER:
        return State.FAILED, f"ended by {signal_name(status - 128)}" + (QDEL if status == 128 + SIGKILL else "")
    if status > 128 and code in RAN:
        return State.FAILED, f"a program in it ended by {signal_name(status - 128)}"
    if code in RAN and status == 0 and _number(record, "ru_minflt") == 0:  # no program runs without a page fault
        return State.CANCELLED, "ended without a trace of its processes, as after qdel -f"
    if code in RAN and status >= 0:
        return (State.FAILED if status else State.COMPLETED), f"its script ended with exit code {status}"
    return (State.FAILED if code > 0 else State.UNKNOWN), ""


def _limit(record: Record) -> tuple[State, str]:
    """The limit that a job reached, as (state, words). Time and memory have the same code: request and use decide."""
    asked = dict(re.findall(r"\b(h_rt|h_vmem)=([\w.]+)", record.get("category", "")))
    ran_s = _number(record, "ru_wallclock")
    if "h_vmem" in asked and ran_s + PROLOG_S < float(asked.get("h_rt", "inf")):
        used = record.get("maxvmem", "?")
        return State.OOM, f"it wanted more memory than it asked for: h_vmem={asked['h_vmem']} a slot, used {used}"
    return State.TIMEOUT, f"it reached its time limit: it ran for {ran_s} s"


def _number(record: Record, key: str) -> int:
    """The whole number that a value begins with, as in '137 (Killed)'; -1 without one."""
    match = re.match(r"\d+", record.get(key, ""))
    return int(match[0]) if match else -1
