"""Notices of a run's ends: what they hold, by which way they go, and that each goes once."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run_folders import make, write_specs
from tests.waiting import until
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.job import recorded
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.run.folder import kept_secrets, ledger
from torusrun.orchestrator.run.folder.events import Ended, Notified
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.hooks import Over
from torusrun.orchestrator.run.plan import secret_values
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.upkeep import notices, send_notices
from torusrun.orchestrator.upkeep.send_notices import send_due

REASON = "rank 1 said 'a \"b\" $(touch /tmp/no) \n; é'"
FAILED = End(State.FAILED, REASON, cause=Cause.PROGRAM, step=57)
SHOWS = ["sh", "-c", 'env -0 > "$0.part"; mv "$0.part" "$0"']


class Hook:
    """A webhook: `answers` are its status codes, one after the other; then 200. It answers while it is `free`."""

    def __init__(self, *answers: int) -> None:
        self.got: list[dict[str, Any]] = []
        self.free = free = threading.Event()
        self.free.set()
        left, got = [*answers], self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                free.wait(60.0)
                self.send_response(left.pop(0) if left else 200)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *words: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook-planted4711"


@contextmanager
def hook(*answers: int) -> Iterator[Hook]:
    found = Hook(*answers)
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join()


def ended(home: Path, url: str = "", end: End = FAILED, **notify: Any) -> RunFolder:
    """A run with these notices that ended so."""
    spec = write_specs(home)
    keys = {**notify, **({"webhook": {"from_shell": True}} if url else {})}
    spec.write_text(f"{spec.read_text()}notify: {json.dumps(keys)}\n")
    run = make(spec, end)
    ledger.append(run.ledger, Ended.by(1, end))
    kept_secrets.keep(run, {secret_values.WEBHOOK: url} if url else {})
    return run


def sent(run: RunFolder) -> list[Notified]:
    return [event for event in ledger.events(run.ledger) if isinstance(event, Notified)]


def test_a_webhook_gets_the_facts_as_json_once(home: Path) -> None:
    with hook() as there:
        run = ended(home, there.url, at=["end", "failure"])
        for _ in range(2):
            send_due(run, 1, ("end", "over"), by_client=False)
    (got,) = there.got
    assert got == {
        "schema": 1, "run": run.run_id, "folder": str(run.folder), "attempt": 1, "moments": ["end", "failure"],
        "state": "FAILED", "cause": "program", "reason": REASON, "step": 57, "hosts": ["here"],
    }  # fmt: skip
    (event,) = sent(run)
    assert (event.moments, event.ways, event.left) == (("end", "failure"), ("webhook",), ())
    assert "planted4711" not in run.ledger.read_text() + run.plan.read_text(), "the URL is a secret"


def test_a_command_gets_the_facts_as_variables_and_no_word_of_the_run(home: Path) -> None:
    seen = home / "seen it's"
    run = ended(home, command=[*SHOWS, str(seen)])
    send_due(run, 1, ("end", "over"), by_client=False)
    own = dict(word.split("=", 1) for word in seen.read_bytes().decode().split("\0") if "=" in word)
    assert (own["TORUSRUN_REASON"], own["TORUSRUN_STATE"], own["TORUSRUN_STEP"]) == (REASON, "FAILED", "57")
    assert (own["TORUSRUN_RUN"], own["TORUSRUN_MOMENTS"], own["TORUSRUN_HOSTS"]) == (run.run_id, "over", "here")


def test_mail_goes_through_sendmail(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("answers", "tries", "works"), [((500,), 2, True), ((500, 500), 2, False), ((302,) * 2, 2, False)]
)
def test_a_webhook_is_tried_twice_and_a_job_leaves_a_failure_to_the_next_command(
    home: Path, capfd: pytest.CaptureFixture[str], answers: tuple[int, ...], tries: int, works: bool
) -> None:
    with hook(*answers) as there:
        run = ended(home, there.url)
        send_due(run, 1, ("end", "over"), by_client=False)
        assert len(there.got) == tries, "a second try, no third, and no redirection is followed"
        assert bool(sent(run)) is works
        if not works:
            assert (
                f"the webhook answered {answers[-1]}" in (said := capfd.readouterr().err) and "planted4711" not in said
            )
            send_due(run, 1, ("end", "over"), by_client=True)
            assert len(there.got) == 3 and sent(run)[-1].ways == ("webhook",)


@pytest.mark.parametrize("given_up", ["webhook", "all"])
def test_a_webhook_that_has_the_notice_and_does_not_answer_in_time_gets_it_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, given_up: str
) -> None:
    monkeypatch.setattr(send_notices, "WEBHOOK_S", 0.3 if given_up == "webhook" else 60.0)
    monkeypatch.setattr(send_notices, "TIME_S", 60.0 if given_up == "webhook" else send_notices.LEAST_S)
    with hook() as there:
        run = ended(home, there.url, command=["false"])
        there.free.clear()
        try:
            send_due(run, 1, ("end", "over"), by_client=False)
        finally:
            there.free.set()
        (event,) = sent(run)
        assert event.failed == {"webhook": send_notices.MAYBE} and event.left == ("command",), (
            "the job leaves the command"
        )
        send_due(run, 1, ("end", "over"), by_client=True)
        assert len(there.got) == 1, "a notice that may have arrived must not be sent again"
    assert [*sent(run)[-1].failed] == ["command"]


def test_a_command_hears_of_a_failure_once(home: Path) -> None:
    run = ended(home, command=["false"])
    for _ in range(2):
        send_due(run, 1, ("end", "over"), by_client=True)
    (event,) = sent(run)
    assert event.failed == {"command": "false ended with exit code 1"} and not event.ways


def test_a_command_that_hangs_is_killed_and_delays_no_other_way(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_notices, "PROGRAM_S", 0.5)
    with hook() as there:
        run = ended(home, there.url, command=["sh", "-c", f"sleep 1000; touch {home}/survived"])
        send_due(run, 1, ("end", "over"), by_client=False)
    (event,) = sent(run)
    assert (event.ways, event.left) == (("webhook",), ("command",)), "the next command of the user tries it again"


def test_a_webhook_without_an_end_is_recorded_as_failed_and_the_other_ways_as_sent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver or an answer byte by byte has no limit. Without a record, each `status` would send all ways again."""
    monkeypatch.setattr(send_notices, "TIME_S", 2.0)
    answered = threading.Event()
    monkeypatch.setattr(send_notices, "_post", lambda url, said, posted: str(answered.wait(60.0)))
    run = ended(home, "http://127.0.0.1:1/", command=["true"])
    try:
        send_due(run, 1, ("end", "over"), by_client=True)
        assert not answered.is_set(), "a way that hangs must be given up"
    finally:
        answered.set()
    (event,) = sent(run)
    assert event.ways == ("command",) and event.failed == {"webhook": "it did not answer in time"}


def test_a_webhook_whose_url_was_removed_is_recorded_and_stops_no_other_way(home: Path) -> None:
    run = ended(home, "http://127.0.0.1:1/", command=["true"])
    run.secrets.unlink()
    send_due(run, 1, ("end", "over"), by_client=True)
    (event,) = sent(run)
    assert event.ways == ("command",) and "cannot be read" in event.failed["webhook"]


@pytest.mark.parametrize("url", ["http://user:key-planted4711@127.0.0.1/x", "http://127.0.0.1:key-planted4711/"])
def test_a_url_that_cannot_be_opened_is_a_failure_without_its_text(
    home: Path, capfd: pytest.CaptureFixture[str], url: str
) -> None:
    run = ended(home, url)
    send_due(run, 1, ("end", "over"), by_client=True)
    assert sent(run)[-1].failed == {"webhook": "the webhook was not reached: InvalidURL"}
    assert "planted4711" not in capfd.readouterr().err + run.ledger.read_text()


def test_a_job_sends_what_it_recorded_and_a_hanging_notice_changes_no_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "JOB_WAITS_S", 1.0)
    with hook() as there:
        run = ended(home, there.url, command=["sleep", "1000"], at=["end"])
        attempt = run.attempt(1)
        attempt.end.unlink()
        text = [line for line in run.ledger.read_text().splitlines() if '"ended"' not in line]
        run.ledger.write_text("\n".join(text) + "\n")
        assert recorded.recorded(run, attempt, lambda: FAILED).state is State.FAILED
    assert End.read(attempt.end) == FAILED, "a notice must not change the end of an attempt"
    assert not sent(run), "a job must end the process of its notices after JOB_WAITS_S"


def test_the_next_status_sends_what_a_job_did_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_begun", set())
    with hook() as there:
        run = ended(home, there.url, at=["end"])
        assert main(["status", run.run_id]) in (0, 1)
        until(lambda: sent(run), "the notice that `status` begins")
        begun: list[Any] = []
        monkeypatch.setattr(notices.process, "detach", lambda *words: begun.append(words))
        monkeypatch.setattr(notices, "_begun", set())
        assert look(run).state is State.FAILED
    assert len(there.got) == 1 and not begun, "a notice that was sent is not begun again"


def test_one_process_sends_for_all_runs_that_a_command_sees(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with hook() as there:
        run = ended(home, there.url, end, at=at)
        send_due(run, 1, ("end", "over"), by_client=True)
    assert bool(there.got) is due


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
        ({"webhook": {}}, "'notify.webhook' must have one source"), ({"webhook": "https://x"}, "webhook must be"),
    ],
)  # fmt: skip
def test_each_mistake_is_said_with_its_place(home: Path, keys: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match="run.yaml:6") as refused:
        ended(home, **keys)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "value", ["hidden-planted4711", "https://me:planted4711@example.org/", "https://example.org:planted4711x/"]
)
def test_a_webhook_that_is_no_url_is_refused_without_its_value(
    home: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(secret_values.WEBHOOK, value)
    spec = write_specs(home)
    spec.write_text(f"{spec.read_text()}notify: {{webhook: {{from_shell: true}}}}\n")
    with pytest.raises(UserError, match="is not a URL") as refused:
        secret_values.read(plan(spec))
    assert "planted4711" not in str(refused.value)
