"""Notices of a run's ends: what they hold, by which way they go, and that each goes once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import Patch
from tests.waiting import until
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.job import recorded
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Notified
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.hooks import Over
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.upkeep import notices, send_notices
from torusrun.orchestrator.upkeep.send_notices import send_due

REASON = "rank 1 said 'a \"b\" $(touch /tmp/no) \n; é'"
FAILED = End(State.FAILED, REASON, cause=Cause.PROGRAM, step=57)
SHOWS = ["sh", "-c", 'env -0 > "$0.part"; mv "$0.part" "$0"']


def ended(home: Path, end: End = FAILED, **notify: Any) -> RunFolder:
    """A run with these notices that ended so."""
    spec = write_specs(home)
    spec.write_text(f"{spec.read_text()}notify: {json.dumps(notify)}\n")
    run = make(spec, end)
    ledger.append(run.ledger, Ended.by(1, end))
    return run


def sent(run: RunFolder) -> list[Notified]:
    return [event for event in ledger.events(run.ledger) if isinstance(event, Notified)]


def test_a_command_gets_the_facts_as_variables_and_no_word_of_the_run(home: Path) -> None:
    seen = home / "seen it's"
    run = ended(home, command=[*SHOWS, str(seen)])
    send_due(run, 1, ("end", "over"), by_client=False)
    own = dict(word.split("=", 1) for word in seen.read_bytes().decode().split("\0") if "=" in word)
    assert (own["TORUSRUN_REASON"], own["TORUSRUN_STATE"], own["TORUSRUN_STEP"]) == (REASON, "FAILED", "57")
    assert (own["TORUSRUN_RUN"], own["TORUSRUN_MOMENTS"], own["TORUSRUN_HOSTS"]) == (run.run_id, "over", "here")


def test_mail_goes_through_sendmail(home: Path, monkeypatch: Patch) -> None:
    program = home / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {home}/words\ncat > {home}/mail\n')
    program.chmod(0o755)
    monkeypatch.setattr(send_notices, "which", lambda name: str(program))
    run = ended(home, mail="me@example.org")
    send_due(run, 1, ("end", "over"), by_client=False)
    assert (home / "words").read_text() == "-i me@example.org\n"
    head, _, body = (home / "mail").read_text().partition("\n\n")
    assert f"Subject: torusrun: {run.run_id} is FAILED" in head.splitlines() and "To: me@example.org" in head
    assert "state: FAILED\n" in body


def test_a_command_hears_of_a_failure_once(home: Path) -> None:
    run = ended(home, command=["false"])
    for _ in range(2):
        send_due(run, 1, ("end", "over"), by_client=True)
    (event,) = sent(run)
    assert event.failed == {"command": "false ended with exit code 1"} and not event.ways


def test_a_command_that_hangs_is_killed_and_delays_no_other_way(home: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(send_notices, "PROGRAM_S", 3.0)  # enough for the mail, on a busy machine
    monkeypatch.setattr(send_notices, "which", lambda name: "/bin/true")
    run = ended(home, command=["sh", "-c", f"sleep 1000; touch {home}/survived"], mail="me@example.org")
    send_due(run, 1, ("end", "over"), by_client=False)
    (event,) = sent(run)
    assert (event.ways, event.left) == (("mail",), ("command",)), "the next command of the user tries it again"
    send_due(run, 1, ("end", "over"), by_client=True)
    assert [*sent(run)[-1].failed] == ["command"] and not sent(run)[-1].ways, "what was sent is not sent again"


def test_a_job_sends_what_it_recorded_and_a_hanging_notice_changes_no_end(home: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(notices, "JOB_WAITS_S", 1.0)
    run = ended(home, command=["sleep", "1000"], at=["end"])
    attempt = run.attempt(1)
    attempt.end.unlink()
    text = [line for line in run.ledger.read_text().splitlines() if '"ended"' not in line]
    run.ledger.write_text("\n".join(text) + "\n")
    assert recorded.recorded(run, attempt, lambda: FAILED).state is State.FAILED
    assert End.read(attempt.end) == FAILED, "a notice must not change the end of an attempt"
    assert not sent(run), "a job must end the process of its notices after JOB_WAITS_S"


def test_the_next_status_sends_what_a_job_did_not(home: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(notices, "_begun", set())
    told = home / "told"
    run = ended(home, command=["sh", "-c", 'echo "$TORUSRUN_RUN" >> "$0"', str(told)], at=["end"])
    assert main(["status", run.run_id]) in (0, 1)
    until(lambda: sent(run), "the notice that `status` begins")
    begun: list[Any] = []
    monkeypatch.setattr(notices.process, "detach", lambda *words: begun.append(words))
    monkeypatch.setattr(notices, "_begun", set())
    assert look(run).state is State.FAILED
    assert told.read_text() == f"{run.run_id}\n" and not begun, "a notice that was sent is not begun again"


def test_one_process_sends_for_all_runs_that_a_command_sees(home: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(notices, "_begun", set())
    monkeypatch.setattr(notices, "_senders", [])
    runs = [ended(home, command=["true"], at=["end"]) for _ in range(3)]
    assert main(["status"]) == 0
    until(lambda: all(map(sent, runs)), "a notice of each run")
    assert len(notices._senders) == 1
    notices._begun.clear()
    working = notices.process.detach(["sleep", "1000"], sys.stderr.buffer)
    notices._senders.append(working)
    try:
        notices.from_client([Over(runs[0], 1, ["end"], State.FAILED, [])])
        assert notices._senders[-1] is working and not notices._begun, "the next look sends, once the process has ended"
    finally:
        working.kill()
        working.wait()


@pytest.mark.parametrize(
    ("end", "at", "due"),
    [
        (FAILED, ["failure"], True), (FAILED, ["start"], False), (End(State.COMPLETED, ""), ["failure"], False),
        (End(State.COMPLETED, ""), [], True), (End(State.CANCELLED, "x"), ["failure"], False),
    ],
)  # fmt: skip
def test_a_notice_is_due_only_at_the_moments_that_are_asked_for(home: Path, end: End, at: list[str], due: bool) -> None:
    run = ended(home, end, command=["touch", str(home / "told")], at=at)
    send_due(run, 1, ("end", "over"), by_client=True)
    assert (home / "told").exists() is due


def test_a_run_has_its_own_keys_before_those_of_its_site(home: Path) -> None:
    spec = write_specs(home)
    site = home / "site.yaml"
    site.write_text(f"{site.read_text()}notify: {{command: [a], at: [start]}}\n")
    spec.write_text(f"{spec.read_text()}notify: {{mail: me}}\n")
    found = plan(spec).notify
    assert (found.command, found.mail, found.at, found.ways) == (("a",), "me", ("start",), ("command", "mail"))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"mail": "-oQ/tmp x"}, "is not a mail address"), ({"at": ["ends"]}, "did you mean 'end'"),
        ({"webhook": {}}, "unknown key 'webhook': write a command that posts"),
    ],
)  # fmt: skip
def test_each_mistake_is_said_with_its_place(home: Path, keys: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match="run.yaml:6") as refused:
        ended(home, **keys)
    assert why in str(refused.value)
