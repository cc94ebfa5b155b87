"""--quiet: the result and errors alone. And what is said on a terminal when something takes long."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal import remarks
from torusrun.orchestrator.cli.main import _as_json as as_json
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.cli.verb_list import VERBS, parser_of
from torusrun.orchestrator.run.folder.records import End


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    yield
    remarks.set_quiet(False)


class Terminal(io.StringIO):
    """A stream of a terminal, which notes when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        if self.getvalue():
            self.written.set()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_it(verb: str) -> None:
    assert "--quiet, -q" in parser_of(verb).format_help()


def test_the_result_of_a_verb_is_the_id_alone(home: Path, capsys: Capsys) -> None:
    run = make(write_specs(home), End(State.FAILED, "rank 3 ended with exit code 1"))
    assert main(["rm", run.run_id, "--yes", "--quiet"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"{run.run_id}\n", "")


def test_the_results_of_a_verb_that_acts_are_json(home: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.chdir(home)
    spec = write_specs(home)
    one, other = (make(spec, DONE) for _ in range(2))

    def results(verb: str, *words: str, code: int = 0) -> list[str]:
        assert main([verb, "--json", *words]) == code
        said = capsys.readouterr().out
        return json.loads(said)["results"] if said else []

    assert results("export", one.run_id, "out") == [f"{home}/out/{one.run_id}/metrics.csv"]
    assert results("report", one.run_id) == [f"{home}/report-{one.run_id}.html"]
    assert results("collect", one.run_id, "some", "--only", "metrics.jsonl") == [f"{home}/some"]
    assert results("collect", one.run_id, other.run_id, "all") == [f"{home}/all/{run.run_id}" for run in (one, other)]
    assert results("run", "--save", "new.yaml", "--", "true") == ["new.yaml"]
    assert results("examples", "programs/ddp", "--save", "ddp.yaml") == [f"{home}/ddp.yaml"]
    assert results("image", "render", "pytorch-cpu")[0].startswith("Bootstrap:")
    assert results("cancel", one.run_id, code=2) == [], "an error is on standard error, and nothing else is printed"
    assert results("export", "last", "out", "out", code=2) == []
    assert results("rm", "--yes", one.run_id, other.run_id) == [one.run_id, other.run_id]


def test_a_signal_loses_no_result(capsys: Capsys) -> None:
    def act() -> int:
        print("digits-1")
        signal.raise_signal(signal.SIGTERM)
        return 0

    with pytest.raises(SystemExit) as ended:
        as_json(act)
    assert ended.value.code == 128 + signal.SIGTERM
    assert json.loads(capsys.readouterr().out)["results"] == ["digits-1"]


def test_watch_prints_how_runs_ended_as_json(home: Path, capsys: Capsys) -> None:
    run = make(write_specs(home), End(State.FAILED, "rank 3 ended with exit code 1"))
    assert main(["watch", run.run_id, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert (found["run"], found["state"]) == (run.run_id, "FAILED")


def test_watch_says_nothing_about_success_and_one_line_about_a_failure(home: Path, capsys: Capsys) -> None:
    spec = write_specs(home)
    good, bad = make(spec, DONE), make(spec, End(State.FAILED, "rank 3 died"))
    assert main(["watch", "-q", good.run_id]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["watch", "-q", good.run_id, bad.run_id]) == 1
    assert capsys.readouterr() == ("", f"torusrun: {bad.run_id} is FAILED: rank 3 died\n")


def test_a_remark_is_hidden_and_an_error_is_not_and_the_next_command_is_not_quiet(home: Path, capsys: Capsys) -> None:
    assert main(["cancel", "--state", "running", "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["status", "gone", "-q"]) == 2
    assert capsys.readouterr().err.startswith("torusrun: there is no run 'gone'")
    assert main(["cancel", "--state", "running", "-q"]) == main(["cancel", "--state", "running"]) == 0
    assert capsys.readouterr().err == "no run to cancel\n"


def test_what_takes_long_is_said_on_a_terminal(monkeypatch: Patch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with remarks.busy("reading the image", after_s=0.0):
        assert terminal.written.wait(300)
    assert terminal.getvalue() == "torusrun: reading the image ...\n"


@pytest.mark.parametrize("quiet", [True, False])
def test_what_is_done_in_time_or_quietly_says_nothing(quiet: bool, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    remarks.set_quiet(quiet)
    with remarks.busy("reading the image", after_s=0.0 if quiet else 3600.0):
        pass
    assert terminal.getvalue() == ""
