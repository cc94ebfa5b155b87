"""Faults at random steps in any role of the tiny GRPO of examples/roles, and the bits that come of it."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.under_faults.runs import ENDS_S, WITHIN_S, Rows
from tests.e2e.places import ROOT, Local, Place, ledger, metrics
from tests.waiting import until

EXAMPLE = ROOT / "examples" / "roles"
FILES = ("grpo.py", "judge.py")
STEPS_APART = 20  # at least, between faults
UNDER_WAY = 5  # steps that may still come after a fault: they are reported in fives
LAST = 40  # steps after the last fault
AWAY_S = 120.0  # a host without power, at most
PAUSE_S = 0.05  # after each step, so that faults strike at different steps
READY_S = 90  # for the rollout server, shorter than the patience of its trainers
# Starts the program that follows; the first start that finds a file of this name has a fault: a server that never
# listens, or another program that has its port, and keeps it for a while.
FAULTY = """
import os, pathlib, subprocess, sys, time
TAKER = ("import socket, sys, time; s = socket.create_server((sys.argv[1], int(sys.argv[2]))); print(flush=True);"
         " time.sleep(15)")
def armed(name):
    try:
        pathlib.Path("..", name).unlink()
        return True
    except FileNotFoundError:
        return False
if armed("never-ready"):
    time.sleep(3600)
if armed("port-taken"):
    taker = [sys.executable, "-c", TAKER, *sys.argv[-2:]]
    subprocess.Popen(taker, stdout=subprocess.PIPE, start_new_session=True).stdout.readline()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
# By name: (role, rank in it, signal). The rollout server may start again; the judge may not.
SIGNALS = {
    "rollout killed": ("rollout", 0, signal.SIGKILL),
    "judge killed": ("judge", 0, signal.SIGKILL),
    "a trainer killed": ("trainer", 1, signal.SIGKILL),
    "the first trainer killed": ("trainer", 0, signal.SIGKILL),
    "rollout stopped": ("rollout", 0, signal.SIGSTOP),
    "rollout killed, then never ready": ("rollout", 0, signal.SIGKILL),
    "rollout killed, then its port taken": ("rollout", 0, signal.SIGKILL),
}
ARMED = {"rollout killed, then never ready": "never-ready", "rollout killed, then its port taken": "port-taken"}
HOSTS = {"the host of rollout and judge without power": "rollout", "a trainer's host without power": "trainer"}
CHECKSUM = re.compile(r"checksum=(\w+)")


@dataclass
class Struck:
    """One fault: the attempt and step at which it struck, and the seconds to the next step, None without one."""

    kind: str
    attempt: int
    step: int
    next_step_s: float | None = None
    same_attempt: bool = False
    reason: str = ""


def submitted(place: Place, steps: int, name: str) -> Path:
    """A run of the example: on this machine, or a node for the servers, two for the trainers and a spare one."""
    place.run(["mkdir", "-p", "grpo"])
    place.put("grpo/faulty.py", FAULTY)
    for file in FILES:
        place.put(f"grpo/{file}", (EXAMPLE / file).read_text())
    spec = yaml.safe_load((EXAMPLE / "grpo.yaml").read_text())
    going = {"attempts": 40, "without_progress": 20}
    if not isinstance(place, Local):
        spec["roles"]["trainer"]["nodes"] = 2
        going["spares"] = 1
    spec["roles"]["rollout"] |= {"alive": True, "ready": {"http": "/", "within": f"{READY_S}s"}}
    spec["roles"]["rollout"]["command"].insert(1, "faulty.py")
    spec["roles"]["judge"]["on"] = spec["roles"]["judge"].pop(True)  # PyYAML takes the key `on` for a boolean
    spec["roles"]["trainer"]["command"] += ["--steps", str(steps), "--pause", str(PAUSE_S)]
    spec |= {"name": name, "site": "site.yaml", "code": "grpo", "time": "60m", "keep_going": going}
    place.put(f"{name}.yaml", yaml.safe_dump(spec, sort_keys=False))
    said = place.torusrun("submit", f"{name}.yaml")
    assert said.returncode == 0, said.stderr
    return Path(place.view(said.stdout.split()[0])["folder"])


def steps_of(faults: int) -> int:
    return (faults + 1) * 2 * STEPS_APART + LAST


def ended(place: Place, run: Path) -> str:
    """The checksum of the weights of a run that ends well. Raises AssertionError with its reason for another."""
    until_s = time.monotonic() + 3 * ENDS_S
    while (view := place.view(run))["state"] not in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"):
        assert time.monotonic() < until_s, f"the run is {view['state']} still: {view['reason']}"
        time.sleep(1.0)
    assert view["state"] == "COMPLETED", f"the run is {view['state']}: {view['reason']}"
    text = (run / f"attempts/{view['attempt']}/logs/rank-0000.log").read_text()
    checksum = CHECKSUM.search(text)
    assert checksum, f"no checksum in {text[-300:]!r}"
    return checksum[1]


def strike_all(place: Place, run: Path, faults: int, seed: int) -> Iterator[Struck]:
    """Strike one run again and again, each time at a random step some steps after it has recovered."""
    chosen, rows = random.Random(seed), Rows(run)
    kinds = [*SIGNALS, *(HOSTS if place.power_off else ())]
    order = [kind for _ in range(faults // len(kinds) + 1) for kind in chosen.sample(kinds, len(kinds))][:faults]
    for kind in order:
        due = rows.newest["step"] + chosen.randint(STEPS_APART, 2 * STEPS_APART)
        rows.wait(lambda due=due: rows.newest["step"] >= due, 2 * WITHIN_S)  # type: ignore[misc]
        assert not rows.is_done and rows.newest["step"] >= due, f"no step {due}: {place.view(run)['reason']}"
        number, step = rows.newest["attempt"], rows.newest["step"]
        seen, struck_s = len(rows.steps), time.time()
        undo = _strike(place, run, number, kind)

        def recovered(seen: int = seen, after: int = step + UNDER_WAY) -> bool:
            return any(row["step"] > after for row in rows.steps[seen:])

        rows.wait(recovered, AWAY_S if undo else 2 * WITHIN_S)
        if undo:  # if the job has lost too many hosts, the next one asks for all nodes of a lab
            place.power_on(undo)  # type: ignore[misc]
        rows.wait(recovered, 2 * WITHIN_S)
        following = next((row for row in rows.steps[seen:] if row["step"] > step + UNDER_WAY), None)
        reasons = [event["reason"] for event in ledger(run, "ended") if event["attempt"] >= number]
        struck = Struck(kind, number, step, reason=reasons[0] if reasons else "")
        if following:
            struck.next_step_s = following["t"] - struck_s
            struck.same_attempt = following["attempt"] == number
        yield struck


def _done_first(place: Place, run: Path) -> Struck:
    """The end of the trainers while servers work, which ends the run: until then, and nothing is left."""
    last, over = metrics(run, "step")[-1], ledger(run, "ended")[-1]
    until(lambda: not place.processes(run), "all processes of the run to end")
    return Struck("the trainers done first", last["attempt"], last["step"], over["t"] - last["t"], same_attempt=True)


def _strike(place: Place, run: Path, attempt: int, kind: str) -> str:
    """Strike; the host that has to get its power back, or ''."""
    placement = json.loads((run / f"attempts/{attempt}/placement.json").read_text())
    role, number, by = SIGNALS.get(kind) or (HOSTS[kind], 0, None)
    ranks = [slot[0] for slot, name in zip(placement["slots"], placement["roles"], strict=True) if name == role]
    # The first host has the supervisor: it is another fault.
    rank = ranks[number] if by else next(r for r in reversed(ranks) if placement["slots"][r][1] != _first(placement))
    start = json.loads((run / f"attempts/{attempt}/ranks/{rank:04d}.start.json").read_text())
    if by:
        if file := ARMED.get(kind):
            place.run(["touch", f"{run}/{file}"])
        place.signal(start["host"], start["pid"], by)
        return ""
    assert place.power_off
    place.power_off(start["host"])
    return str(start["host"])


def _first(placement: dict[str, Any]) -> str:
    return str(min(slot[1] for slot in placement["slots"]))


def measured(place: Place, faults: int, seed: int) -> tuple[list[Struck], str]:
    """(the faults of one run and what followed, '' or how its result differs from that of an undisturbed run)."""
    steps = steps_of(faults)
    expected = ended(place, submitted(place, steps, "undisturbed"))
    run, struck = submitted(place, steps, "disturbed"), []
    try:
        for each in strike_all(place, run, faults, seed):
            struck.append(each)
            print(json.dumps(asdict(each)), flush=True)
        found = ended(place, run)
        struck.append(_done_first(place, run))
    except AssertionError as error:
        with suppress(Exception):
            place.torusrun("cancel", run.name)
        return struck, str(error)
    return struck, "" if found == expected else f"its weights are {found}, not {expected}"
