"""Notices of a real run, sent by its jobs: each once, and the last one before the job is gone."""

from __future__ import annotations

import json

from tests.e2e.places import Local, ledger, until

APPENDS = 'echo "$TORUSRUN_ATTEMPT $TORUSRUN_MOMENTS $TORUSRUN_STATE" >> "$0"'
AGAIN = ("--set", "keep_going.attempts=2", "--set", "exit_codes.later=[1]")


def test_a_run_that_keeps_going_reports_each_attempt_and_its_end_once(local: Local) -> None:
    seen, path = local.folder / "notices", local.folder / "script.yaml"
    local.write_script("exit 1")
    keys = {"command": ["sh", "-c", APPENDS, str(seen)], "at": ["start", "end", "failure", "over"]}
    path.write_text(f"{path.read_text()}notify: {json.dumps(keys)}\n")
    run = local._submit("script.yaml", *AGAIN)
    local.watch(run)
    assert local.torusrun("status", run.name).returncode == 0
    most = len(ledger(run, "started", "ended"))

    def told() -> list[str]:
        return seen.read_text().splitlines() if seen.exists() else []

    def of(moment: str) -> list[str]:
        return sorted(line.split()[0] for line in told() if f" {moment}" in line)

    until(lambda: of("over") and len(of("start")) + len(of("end")) >= most, "a notice of each start and end")
    assert len(of("over")) == 1 and len(of("start")) >= 2, told()
    assert of("start") == of("end") == sorted({*of("end")}), told()
