"""Notices of real runs, sent by their jobs: each once, and the last one before the job is gone."""

from __future__ import annotations

import json

from tests.e2e.places import Local, ledger, until

APPENDS = 'echo "$TORUSRUN_ATTEMPT $TORUSRUN_MOMENTS $TORUSRUN_STATE" >> "$0"'


def notices(place: Local, script: str, name: str, *words: str) -> list[str]:
    """The notices of a run of `script` with all moments, once it is over."""
    place.write_script(script)
    seen = place.folder / f"notices-of-{name}"
    keys = {"command": ["sh", "-c", APPENDS, str(seen)], "at": ["start", "end", "failure", "over"]}
    path = place.folder / "script.yaml"
    path.write_text(f"{path.read_text()}notify: {json.dumps(keys)}\n")
    run = place._submit("script.yaml", *words)
    place.watch(run)
    assert place.torusrun("status", run.name).returncode == 0
    most = len(ledger(run, "started", "ended"))

    def complete() -> bool:
        told = seen.read_text() if seen.exists() else ""
        return " over" in told and told.count(" start ") + told.count(" end ") >= most

    until(complete, "a notice of each start, each end, and the end of the run")
    return sorted(seen.read_text().splitlines())


def test_a_run_reports_its_start_and_its_end_once(local: Local) -> None:
    assert notices(local, "exit 0", "well") == ["1 end over COMPLETED", "1 start RUNNING"]


def test_a_run_that_keeps_going_reports_each_attempt_and_its_end_once(local: Local) -> None:
    told = notices(local, "exit 1", "kept", "--set", "keep_going.attempts=2", "--set", "exit_codes.later=[1]")
    starts = [line for line in told if " start " in line]
    ends = [line for line in told if " end " in line]
    over = [line for line in told if " over" in line]
    assert len(over) == 1 and len(starts) >= 2, told
    assert len({line.split()[0] for line in ends}) == len(ends) == len(starts), told
