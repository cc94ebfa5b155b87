"""Login nodes that answer badly, late, too much or never: one error in words, and everything else is shown."""

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bad_node import BOOT, FLOOD, SILENCE, Replay, command, frame, wrote
from tests.unit.clock import Clock
from tests.unit.far import HERE, Pipe
from tests.unit.run_folders import make, write_specs
from tests.unit.terminals import Terminal
from tests.unit.test_remote import VIEW
from tests.unit.test_remote_verbs import run_file  # noqa: F401
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.cli import api
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.remote import asking, collect, remote_runs, session, status
from torusrun.orchestrator.remote.feed import Feed
from torusrun.orchestrator.remote.handle import RunThere
from torusrun.orchestrator.remote.links.host import BadAnswer, HostRefused, LinkLost, LoginHost, Unanswered
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session, received
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.state.view import View

DEFECT: dict[str, str] = {}
Answer = Callable[[dict[str, Any], bytes], str]


class Impatient(Clock):
    """A clock that moves on by a second whenever somebody looks."""

    def monotonic(self) -> float:
        self.now_s += 1.0
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Impatient(0.0)
    for module in (session, asking):
        monkeypatch.setattr(module, "time", made)
    return made


def leads_to(monkeypatch: pytest.MonkeyPatch, answer: Answer, **how: Any) -> list[Replay]:
    """Have each connection lead to a login node that answers so; the connections that were made."""
    made: list[Replay] = []

    def connect(host: LoginHost, command: str, **_: Any) -> Replay:
        made.append(Replay(answer, **how))
        return made[-1]

    monkeypatch.setattr(session, "connect", connect)
    return made


def saying(content: Any) -> Answer:
    """Each call writes this, as JSON, and ends."""
    written = json.dumps(content).encode()

    def answer(question: dict[str, Any], payload: bytes) -> str:
        if question["ask"] == "read":
            return wrote(written[question["out"] :])
        return frame(missing=[]) if question["ask"] == "missing" else frame()

    return answer


def run_at(address: str, name: str = "a-1") -> Known:
    kept = Known(name, LoginHost(address), "far", 1000.0, record_of(View, {**VIEW, "run": name}), 2000.0)
    remote_runs.keep(kept)
    return kept


def test_one_bad_login_node_hides_no_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node is a process: one is silent, one works for ever, one floods, one sends noise, one other numbers."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(status, "SILENCE_S", 1.0)
    monkeypatch.setattr(status, "LONGEST_S", 3.0)
    answers = {
        "silent": {"start": SILENCE},
        "begins-not": {"boot": SILENCE},
        "endless": {"read": wrote(b"", None)},
        "floods": {"read": FLOOD + "x" * 100_000},
        "greets": {"boot": FLOOD + "Welcome! "},
        "noise": {"start": "what?\n"},
        "defect": DEFECT,
        "other-numbers": {"read": frame(b"xyz", out=-1, err=4, exit=None, gone=False)},
    }
    for name in answers:
        (tmp_path / name).mkdir()
        run_at(name, f"{name}-1")
    here = make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well")).run_id

    links = []

    def connect(host: LoginHost, _: str, **__: Any) -> Pipe:
        if answers[host.address] is DEFECT:
            raise RuntimeError("nobody expects this")
        links.append(Pipe(command(answers[host.address], tmp_path / host.address), tmp_path))
        return links[-1]

    monkeypatch.setattr(session, "connect", connect)
    assert main(["status", "--json"]) == 0
    said = capsys.readouterr()
    for link in links:
        link.close()  # which ends the threads that were left behind
    views = {view["run"]: view for view in json.loads(said.out)["runs"]}
    assert views.keys() == {here, *(f"{name}-1" for name in answers)} and views[here]["state"] == "COMPLETED"
    for name in answers:
        reason = views[f"{name}-1"]["reason"]
        assert reason.startswith(f"{name}: ") and "ago it was RUNNING" in reason, reason
        assert f"torusrun: {name}: " in said.err
    assert said.err.count("its runs are shown in their last known states") == len(answers) == said.err.count("\n")


@pytest.mark.parametrize(
    "change",
    [
        {"state": "GONE"},
        {"state": 3},
        {"folder": None},
        {"hosts": "n1"},
        {"step": "x"},
        {"loss": 1e400},
        {"grid": [{}]},
    ],
    ids=str,
)
def test_a_view_that_cannot_be_is_not_kept_and_not_read(
    home: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leads_to(monkeypatch, saying({"a-1": {**VIEW, **change}}))
    kept = run_at("bad")
    assert main(["status"]) == 0
    said = capsys.readouterr()
    assert (
        remote_runs.runs() == [kept]
        and "a-1" in said.out
        and "bad: its answer is not what torusrun sends: " in said.err
    )
    file = remote_runs.file_of("a-1")
    file.write_text(json.dumps({**json.loads(file.read_text()), "last": {**VIEW, **change}}))
    leads_to(monkeypatch, lambda *_: "")
    assert main(["status"]) == 0 and main(["status", "a-1"]) == 0
    assert capsys.readouterr().out.count("UNKNOWN") == 2
    assert [run.last for run in remote_runs.runs()] == [None]


@pytest.mark.parametrize(
    "change", [{"host": "x"}, {"host": {"address": 3}}, {"submitted_s": "x"}, {"run": "../b"}, {"run": 3}], ids=str
)
def test_a_damaged_file_of_a_run_is_left_out(home: Path, change: dict[str, Any]) -> None:
    run_at("good", "a-2")
    run_at("bad")
    file = remote_runs.file_of("a-1")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert [run.run for run in remote_runs.runs()] == ["a-2"]


def test_a_login_node_that_takes_connections_and_never_answers_is_given_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = leads_to(monkeypatch, lambda *_: "", most=0)
    link = Session(HERE, 60.0, lambda text: None)
    with pytest.raises(LinkLost, match="given up after 60 s"):
        link.ask({"ask": "missing", "sha256s": []})
    assert len(made) > 2 and clock.now_s < 200


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trickle(Replay):
        def receive(self) -> bytes:
            clock.now_s += 15.0
            data = bytes(self._coming[:1])
            del self._coming[:1]
            self.read_bytes += len(data)
            return data or b" "

    link = Trickle(lambda *_: "", boot=BOOT)
    monkeypatch.setattr(session, "connect", lambda host, command, **how: link)
    with pytest.raises(LinkLost, match="too slowly"):
        Session(HERE)
    assert link.read_bytes < 10


def test_a_call_that_never_ends_is_not_waited_for_for_ever(
    home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leads_to(monkeypatch, lambda question, _: wrote(b"", None), most=1_000_000)
    with pytest.raises(Unanswered, match="has not answered within 7200 s"):
        RunThere(run_at("endless")).cancel()
    assert capsys.readouterr().err == "torusrun: endless is at work and has not answered yet\n"


@pytest.mark.parametrize("stream", ["out", "err"])
def test_an_answer_without_end_is_cut_off(
    home: Path, stream: str, monkeypatch: pytest.MonkeyPatch, run_file: Path  # noqa: F811
) -> None:  # fmt: skip
    piece = b"x" * (1 << 20)
    sizes = {"out": 0, "err": 0, "exit": None, "gone": False, stream: len(piece)}
    made = leads_to(monkeypatch, lambda question, _: frame(piece, **sizes), most=1_000_000)
    monkeypatch.setattr(asking, "LARGEST_BYTES", 5 << 20)
    with pytest.raises(BadAnswer, match="larger than 5,242,880 bytes"):
        RunThere(run_at("floods")).metrics()
    leads_to(monkeypatch, lambda question, _: json.dumps({"bytes": 17 << 20}) + "\n")
    with pytest.raises(BadAnswer, match="a message of 17825792 bytes"), Feed([run_at("floods")]) as feed:
        for _ in feed.follow():
            pass
    assert max(link.read_bytes for link in made) < 20 << 20
    with pytest.raises(BadAnswer, match="too many parts"):
        received(HERE, tuple[dict[str, int], ...], b"[" + b"{}," * 1_000_000 + b"{}]")
    for flood in (frame(b"x" * (3 << 20)), json.dumps("x" * 100_000), "[" * 50_000 + "\n", "1" * 5000 + "\n"):
        leads_to(monkeypatch, lambda question, _, flood=flood: flood)
        with pytest.raises(BadAnswer, match="this is not an answer"):
            RunThere(run_at("floods")).metrics()


def test_a_submission_that_is_answered_badly_is_not_forgotten(
    run_file: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    for wrong in ([], 3, {"unsure": ""}):
        leads_to(monkeypatch, saying(wrong))
        with pytest.raises(NoAnswer, match="`torusrun status asked-.*` shows whether it was submitted"):
            api.submit(run_file)
    assert len(remote_runs.runs()) == 3


def announcing(*entries: dict[str, Any], content: bytes = b"") -> Answer:
    said = saying([*entries])

    def answer(question: dict[str, Any], payload: bytes) -> str:
        return frame(content[question["at"] :]) if question["ask"] == "fetch" else said(question, payload)

    return answer


FILE = {"name": "f", "kind": "file", "mode": 0o644, "size_bytes": 3, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (announcing({**FILE, "size_bytes": 1 << 59}), "GiB are free, and the run takes"),
        (announcing(*[{**FILE, "name": f"{n}", "size_bytes": 1 << 50} for n in range(9)]), "make room"),
        (announcing({**FILE, "size_bytes": -1}), "less than 0 bytes"),
        (announcing({**FILE, "size_bytes": "3"}), "size_bytes' is of type str"),
        (announcing({"name": "f"}), "kind' is missing"),
        (announcing(FILE, content=b"x" * 1_000_000), "not what was announced"),
        (announcing(FILE, content=b"xyz"), "not what was announced"),
        (announcing(FILE), "not what was announced"),
        *[
            (announcing({**FILE, "name": name}), "is not the name of a file below the run")
            for name in ("../f", "/tmp/f", "a/../../f", "", ".", "f\0", "\ud800")
        ],
        (announcing({**FILE, "name": "none/f"}), "No such file"),
        (announcing({**FILE, "name": "x" * 300}), "File name too long"),
    ],
)
def test_what_a_login_node_announces_badly_is_not_collected(
    home: Path, answer: Answer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def noting(question: dict[str, Any], payload: bytes) -> str:
        asked.append(question["ask"])
        return answer(question, payload)

    made = leads_to(monkeypatch, noting)
    with pytest.raises(SiteError, match=why):
        collect.collect(run_at("bad"), home / "out", "newest")
    assert not (home / "out").exists() and not list(home.glob(".torusrun-*"))
    assert asked[-1] == "forget", "the copy over there is removed"
    assert sum(link.read_bytes for link in made) < 2 << 20


WATCH = """
import sys
from pathlib import Path
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.remote import feed, session
from tests.unit.far import Pipe
feed.LEAVES_S = 0.1
session.connect = lambda host, command, **how: Pipe(sys.argv[1], Path(sys.argv[2]))
sys.exit(main(["watch", "a-1"]))
"""


def test_watch_is_left_before_the_first_answer(home: Path, tmp_path: Path) -> None:
    run_at("silent")
    with Terminal(WATCH, command({"look": SILENCE}, tmp_path), str(tmp_path)) as terminal:
        terminal.until("its login node has not answered yet; ")
        terminal.press("q")
        assert terminal.ended() == 1 and terminal.restored


def test_the_output_of_a_login_node_cannot_move_the_cursor(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b[2J\nCOMPLETED"
    told = {
        "views": {"0": {**VIEW, "state": "COMPLETED", "reason": evil, "job": evil, "hosts": [evil]}},
        "rows": [[evil, evil]],
        "over": True,
    }
    leads_to(monkeypatch, lambda *_: frame(json.dumps(told).encode()))
    with Feed([run_at("evil")]) as feed:
        (view,) = [*feed.follow()][-1]
        assert not any(char in json.dumps([view.as_json(), feed.rows(view)]) for char in ("\\u001b", "\\n"))
    assert view.state is State.COMPLETED and remote_runs.find("a-1").last.state is State.COMPLETED


@pytest.mark.parametrize("number", ["1", "-1", "x"])
def test_a_run_that_nobody_asked_about_is_not_reported(
    home: Path, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to(monkeypatch, lambda *_: frame(json.dumps({"views": {number: VIEW}}).encode()))
    with pytest.raises(BadAnswer, match="was not asked about"), Feed([run_at("bad")]) as feed:
        for _ in feed.follow():
            pass


@pytest.fixture
def ssh_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `ssh` that leads to this machine."""
    (program := tmp_path / "ssh").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nexec sh -c "$3"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


ENDS = "echo Traceback >&2; echo \"ModuleNotFoundError: No module named 'site'\" >&2; exit 3"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (None, "sh: .*python: not found; `.*` ended with exit code 127"),
        (ENDS, "ModuleNotFoundError: No module named 'site'; `.*` ended with exit code 3"),
        ("exit 0", "it said nothing; `.*` ended with exit code 0"),
        ("exec yes Welcome", "its shell prints 'Welcome.*' and does not start Python$"),
    ],
)
def test_why_a_python_over_there_does_not_start_comes_first(
    ssh_here: None, tmp_path: Path, program: str | None, why: str
) -> None:
    python = tmp_path / "python"
    if program:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
    with pytest.raises(HostRefused, match=f"^nobody@nowhere: {why}") as raised:
        Session(replace(HERE, connect="openssh", python=str(python)))
    assert program == "exec yes Welcome" or "Python 3.10 or newer is needed" in str(raised.value)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("the link broke: Socket is closed", "it said nothing"),
        ("the connection ended", "it said nothing"),
        ("Traceback:\nImportError: no ssl\n", "ImportError: no ssl"),
    ],
)
def test_a_link_that_ended_with_its_program_is_not_the_reason(
    said: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Replay:
        raise LinkLost(f"{HERE.address}: {said}", 1)

    monkeypatch.setattr(Replay, "send", fails)
    leads_to(monkeypatch, lambda *_: "")
    with pytest.raises(HostRefused, match=f"^{HERE.address}: {shown}; `{HERE.python}` ended with exit code 1 there; "):
        Session(HERE)


@pytest.mark.parametrize("on_terminal", [True, False])
def test_what_a_verb_prints_over_there_cannot_control_a_terminal_here(on_terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return on_terminal

    show = asking.shown(stream := Stream())
    for piece in (
        b"state\x1b]0;owned\x07\n\ttwo\r",
        "caf\u00e9\n\x9b2J".encode()[:4],
        "caf\u00e9\n\u009b2J".encode()[4:],
    ):
        show(piece)
    text = stream.getvalue()
    assert text.startswith("state") and "\n\ttwo" in text and "caf\u00e9\n" in text
    assert ("\x1b" in text or "\x07" in text or "\x9b" in text or "\r" in text) != on_terminal


def test_a_page_that_acts_is_not_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, saying("<!doctype html><script>alert(1)</script>"))
    run_at("bad")
    assert main(["report", "a-1", "-o", str(home / "page.html")]) == 3
    assert not (home / "page.html").exists()
