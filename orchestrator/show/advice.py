"""What each cause of an end means, and what its user can do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.base.terminal.plain import plain

CONTINUES = "`torusrun resume {run}` continues from the newest checkpoint, if there is one"
AVOIDS = "its option `--exclude {hosts}` avoids a bad host; `torusrun nodes` lists those that are left out anyway"
TRACEBACKS = "`torusrun logs {run} --errors` shows the errors of all ranks"
MEND = "fix it and submit a new run; this run keeps the code and the keys that it was submitted with"


@dataclass(frozen=True)
class Advice:
    """What a cause means, and what to do; {run} is the run's id, {hosts} the hosts concerned, {folder} its folder."""

    meaning: str
    to_do: tuple[str, ...] = (CONTINUES,)

    def lines(self, run: str, folder: str, hosts: Sequence[str]) -> tuple[str, ...]:
        """What to do about this run. The names in commands are quoted for a shell."""
        named = {"run": shlex.quote(run), "folder": plain(folder), "hosts": shlex.quote(",".join(hosts))}
        texts = self.to_do if hosts else [text.replace("{hosts}", "its hosts") for text in self.to_do if text != AVOIDS]
        return tuple(text.format(**named) for text in texts)


ADVICE = {
    Cause.DONE: Advice("the run is complete", ()),
    Cause.STOPPED: Advice("a user or the scheduler requested its end"),
    Cause.TIME_LIMIT: Advice(
        "it reached its time limit", (f"{CONTINUES}; --time 4h gives the next attempt more time",)
    ),
    Cause.PREEMPTED: Advice("the scheduler gave its nodes to another job"),
    Cause.HOST_LOST: Advice("a host died, or its network connection was cut", (CONTINUES, AVOIDS)),
    Cause.BAD_HOST: Advice(
        "a host or its link is bad: a check before the ranks started found it",
        (
            CONTINUES,
            AVOIDS,
            "preflight.json in the attempt's folder has all checks; show it to an administrator",
            "if the host is fine again, `torusrun nodes forgive {hosts}`",
            "if this is normal for the host, change the limit in `preflight` of the site, or "
            "set `preflight: false` in a new run",
        ),
    ),
    Cause.KILLED: Advice(
        "a process of the run was killed by a signal, and not by torusrun",
        (
            "a system that is short of memory kills processes: look into the kernel's messages (`dmesg`) of {hosts}, "
            "and ask for more memory (`torusrun resume {run} --mem SIZE`) if that was the cause",
            CONTINUES,
        ),
    ),
    Cause.OUT_OF_MEMORY: Advice(
        "it used more memory than it had asked for",
        (
            "`torusrun resume {run} --mem SIZE` asks for more, `keep_going.grow` does so by itself; or start fewer "
            "data workers",
        ),
    ),
    Cause.OUT_OF_DEVICE_MEMORY: Advice(
        "the memory of a GPU was full", ("make the batch of each rank smaller, in a new run or with more ranks",)
    ),
    Cause.PROGRAM: Advice("the program itself failed", (MEND, f"if the error was temporary: {CONTINUES}")),
    Cause.HANG: Advice(
        "its ranks made no progress any more",
        (
            "`torusrun logs {run} --all` shows what the ranks wrote last, and their stacks (of a command only with "
            "py-spy on the job's PATH)",
            CONTINUES,
        ),
    ),
    Cause.CONNECTION: Advice(
        "ranks lost their connection, and no record shows that a rank ended before that",
        ("if it happens again on {hosts}, show it to an administrator: the network there may be bad", CONTINUES),
    ),
    Cause.LAUNCHER: Advice(
        "the launcher could not start the ranks, or ended before them",
        ("`torusrun doctor --job` tries the launcher of the site with a small job", CONTINUES),
    ),
    Cause.SCHEDULER: Advice("the scheduler dropped its job"),
    Cause.CONFIGURATION: Advice("the run asks for something impossible", (MEND,)),
    Cause.DISK: Advice("a disk is full, or cannot be written", ("free space for {folder}", CONTINUES)),
    Cause.IMAGE: Advice(
        "the image is missing, damaged, or does not fit",
        ("`torusrun plan --check` finds what does not fit; `torusrun resume {run} --new-image` takes a new one",),
    ),
    Cause.INTERNAL: Advice("a defect of torusrun ended it, and would end another attempt", ("report it", CONTINUES)),
    Cause.UNKNOWN: Advice("no record names the cause", (TRACEBACKS, CONTINUES)),
}
