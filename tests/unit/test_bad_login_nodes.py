"""Login nodes that answer badly, late, too much or never: one error in words, and everything else is shown."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bad_node import FLOOD, MARK, OTHERS, READY, SILENCE, argv, asked
from tests.unit.conftest import leads
from tests.unit.far import HERE
from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.test_remote import VIEW
from tests.unit.test_remote_verbs import run_file  # noqa: F401
from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.cli import api
from torusrun.orchestrator.cli.handles_there import RunThere, collect, follow
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.remote import call, program, remote_runs, status
from torusrun.orchestrator.remote.host import HostRefused, LoginHost, Unanswered
from torusrun.orchestrator.remote.program import WaitLimits
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.state.view import View

DEFECT = "defect"
Answers = dict[str, Any]


def leads_to(monkeypatch: Patch, answers: Answers, folder: Path) -> None:
    """Have each connection lead to a login node that answers so; its requests are in the folder."""
    program = argv(answers, folder)
    leads(monkeypatch, lambda command: program)


def saying(content: Any) -> str:
    """Each verb prints this, as JSON."""
    return READY + json.dumps(content)


def run_at(address: str, name: str = "a-1") -> Known:
    kept = Known(name, LoginHost(address), "far", 1000.0, record_of(View, {**VIEW, "run": name}), 2000.0)
    remote_runs.keep(kept)
    return kept


def test_one_bad_login_node_hides_no_run(home: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """Each node is a process: one is silent, one works for ever, one floods, one sends noise, one other rows."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(status, "SILENCE_S", 3.0)
    monkeypatch.setattr(status, "LONGEST_S", 6.0)
    monkeypatch.setattr(call, "LARGEST_BYTES", 1 << 20)
    answers = {
        "silent": SILENCE, "floods": READY + "x" * (2 << 20), "greets": FLOOD + "Welcome! ", "trickles": FLOOD + MARK,
        "noise": MARK + "what?\n", "defect": DEFECT, "other-rows": saying({"runs": [{"run": "x"}]}),
        "no-rows": saying([3]),
    }  # fmt: skip
    programs = {name: argv({OTHERS: answer}, tmp_path / name) for name, answer in answers.items()}
    for name in answers:
        run_at(name, f"{name}-1")
    here = make(write_specs(home), DONE).run_id

    def connected(host: LoginHost, command: str, **_: Any) -> list[str]:
        if answers[host.address] == DEFECT:
            raise RuntimeError("nobody expects this")
        return programs[host.address]

    monkeypatch.setattr(LoginHost, "argv", connected)
    assert main(["status", "--json"]) == 0
    said = capsys.readouterr()
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
        {"state": "GONE"}, {"state": 3}, {"folder": None}, {"hosts": "n1"}, {"step": "x"}, {"loss": 1e400},
        {"grid": [{}]},
    ],
    ids=str,
)  # fmt: skip
def test_a_view_that_cannot_be_is_not_kept_and_not_read(
    home: Path, change: dict[str, Any], monkeypatch: Patch, capsys: Capsys
) -> None:
    leads_to(monkeypatch, {"status": saying({"runs": [{**VIEW, **change}]})}, home / "bad")
    kept = run_at("bad")
    assert main(["status"]) == 0
    said = capsys.readouterr()
    assert remote_runs.runs() == [kept] and "a-1" in said.out
    assert "bad: its answer is not what torusrun sends: " in said.err
    file = remote_runs.file_of("a-1")
    file.write_text(json.dumps({**json.loads(file.read_text()), "last": {**VIEW, **change}}))
    leads_to(monkeypatch, {"status": READY}, home / "bad")
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


def test_an_answer_that_never_comes_is_not_waited_for(
    home: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    (slow := tmp_path / "slow").write_text(f"#!/bin/sh\nprintf '{READY}'\nexec sleep 600\n".replace("\\n", "\n"))
    slow.chmod(0o755)
    leads(monkeypatch, lambda command: [str(slow)])
    monkeypatch.setattr(program, "QUIET_S", 0.2)
    with pytest.raises(Unanswered, match="has not answered within 5 s"):
        call.captured(HERE, call.words("cancel", "a-1", buffered=True), limits=WaitLimits(answer_s=5.0))
    assert capsys.readouterr().err == f"torusrun: {HERE.address} is at work and has not answered yet\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (READY + "x" * (2 << 20), "larger than 1,048,576 bytes"),
        (READY + "[" + "{}," * 1000 + "{}]", "too many parts"),
        (MARK + "x" * 100_000, "its answer has no end"),
        (MARK + "[" * 5_000 + "\n", "its answer is not what torusrun sends"),
        (MARK + "3\n", "its answer is not what torusrun sends"),
        (MARK + json.dumps({"error": "no \x1b[2J"}) + "\n", r"no \\x1b\[2J"),
    ],
)
def test_an_answer_without_end_is_cut_off(home: Path, answer: str, why: str, monkeypatch: Patch) -> None:  # fmt: skip
    monkeypatch.setattr(call, "LARGEST_BYTES", 1 << 20)
    monkeypatch.setattr(program, "MOST_PARTS", 1000)
    leads_to(monkeypatch, {OTHERS: answer}, home / "bad")
    with pytest.raises(SiteError, match=why):
        RunThere(run_at("floods")).provenance()


@pytest.mark.parametrize("answer", [READY + "other", READY, (READY + "x", 77), (READY + "[]", 255)])
def test_a_submission_that_is_answered_badly_is_not_forgotten(
    run_file: Path, tmp_path: Path, answer: Any, monkeypatch: Patch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr(call, "PATIENCE_S", -1.0)
    leads_to(monkeypatch, {"submit": answer}, tmp_path / "bad")
    with pytest.raises(NoAnswer, match="`torusrun status asked-.*` shows whether it was submitted"):
        api.submit(run_file)
    assert len(remote_runs.runs()) == 1


def announcing(*entries: dict[str, Any], content: str = "") -> Answers:
    return {"collect": saying([*entries]), "fetch": READY + content}


FILE = {"name": "f", "kind": "file", "mode": 0o644, "size_bytes": 3, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (announcing({**FILE, "size_bytes": 1 << 59}), "GiB are free, and the run takes"),
        (announcing(*[{**FILE, "name": f"{n}", "size_bytes": 1 << 50} for n in range(9)]), "make room"),
        (announcing({**FILE, "size_bytes": -1}), "less than 0 bytes"),
        (announcing({**FILE, "size_bytes": "3"}), "size_bytes' is of type str"),
        (announcing({"name": "f"}), "kind' is missing"),
        (announcing({**FILE, "kind": "link", "target": "/etc/passwd"}), "is not the name of a file below the run"),
        (announcing(FILE, content="x" * 1_000_000), "not what was announced"),
        (announcing(FILE, content="xyz"), "not what was announced"),
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
    home: Path, answers: Answers, why: str, monkeypatch: Patch
) -> None:
    leads_to(monkeypatch, answers, home / "bad")
    with pytest.raises(SiteError, match=why):
        collect(run_at("bad"), home / "out", "newest")
    assert not (home / "out").exists() and not list(home.glob(".torusrun-*"))
    assert asked(home / "bad")[-1]["do"] == "drop", "the copy over there is removed"


def test_the_output_of_a_login_node_cannot_move_the_cursor(home: Path, monkeypatch: Patch) -> None:
    evil = "\x1b[2J\nCOMPLETED"
    row = {**VIEW, "state": "COMPLETED", "reason": evil, "job": evil, "hosts": [evil]}
    leads_to(monkeypatch, {"status": saying({"runs": [row, {**row, "run": "other-1"}]})}, home / "evil")
    ((view,),) = follow([run_at("evil")])
    assert not any(char in json.dumps(view.as_json()) for char in ("\\u001b", "\\n"))
    assert view.state is State.COMPLETED and remote_runs.find("a-1").last.state is State.COMPLETED
    assert [run.run for run in remote_runs.runs()] == ["a-1"], "a run that nobody asked about is not kept"


ENDS = "echo Traceback >&2; echo \"ModuleNotFoundError: No module named 'site'\" >&2; exit 3"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (None, "sh: .*python: not found; `.*` ended with exit code 127"),
        (ENDS, "ModuleNotFoundError: No module named 'site'; `.*` ended with exit code 3"),
        ("exit 0", "it said nothing; `.*` ended with exit code 0"),
        ("exec yes Welcome", "its shell prints 'Welcome.*' and does not start Python$"),
        ("echo Host key verification failed. >&2; exit 255", "Host key verification failed.. Run `ssh nobody@nowhere`"),
    ],
)
def test_why_a_python_over_there_does_not_start_comes_first(
    monkeypatch: Patch, tmp_path: Path, program: str | None, why: str
) -> None:
    python = tmp_path / "python"
    if program:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
    leads(monkeypatch, lambda command: ["sh", "-c", command])
    with pytest.raises(HostRefused, match=f"^nobody@nowhere: {why}"):
        call.answer(replace(HERE, python=str(python)), {"do": "folder"}, str)


def test_long_messages_of_ssh_do_not_stop_it(monkeypatch: Patch) -> None:
    says = "head -c 200000 /dev/zero | tr '\\0' . >&2; echo last words >&2"
    leads(monkeypatch, lambda command: ["sh", "-c", f"{says}; printf '%s' \"$0\"; exit 3", READY + '"x"'])
    with pytest.raises(SiteError, match="last words"):
        call.answer(HERE, {"do": "folder"}, str)


@pytest.mark.parametrize("on_terminal", [True, False])
def test_what_a_verb_prints_over_there_cannot_control_a_terminal_here(on_terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return on_terminal

    show = call.shown(stream := Stream())
    for piece in (
        b"state\x1b]0;owned\x07\n\ttwo\r",
        "caf\u00e9\n\x9b2J".encode()[:4],
        "caf\u00e9\n\u009b2J".encode()[4:],
    ):
        show(piece)
    text = stream.getvalue()
    assert text.startswith("state") and "\n\ttwo" in text and "caf\u00e9\n" in text
    assert ("\x1b" in text or "\x07" in text or "\x9b" in text or "\r" in text) != on_terminal


def test_a_page_that_acts_is_not_kept(home: Path, monkeypatch: Patch) -> None:
    leads_to(monkeypatch, {"report": READY + "<!doctype html><script>alert(1)</script>"}, home / "bad")
    run_at("bad")
    assert main(["report", "a-1", "-o", str(home / "page.html")]) == 3
    assert not (home / "page.html").exists()
