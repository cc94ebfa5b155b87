"""`watch` of runs on a login node: drawn here from what is told there, through links that break."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.unit.far import HERE
from tests.unit.run_folders import make, write_specs
from tests.unit.terminals import Terminal, bare
from tests.unit.test_watch_screen import DETAIL
from tests.waiting import until
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.remote import remote_runs
from torusrun.orchestrator.remote.login_node.watching import Watching
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.schedulers.local.sessions import job_id_of
from torusrun.orchestrator.show.screen.detail import Detail
from torusrun.orchestrator.show.screen.watched import WatchedHere

WATCH = """
import sys
from pathlib import Path
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.remote import session
from tests.unit.far import Pipe
far, lives, *words = sys.argv[1:]
left = [float(life) for life in lives.split()]
session.connect = lambda host, command, **how: Pipe(command, Path(far), left.pop(0) if left else float("inf"))
session.WAITS_S = (1.0,)
sys.exit(main(["watch", *words]))
"""


@pytest.fixture
def running(far: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    """The newer one of two runs on the other side that are at work, as far as anybody can tell."""
    at_work = subprocess.Popen(["sleep", "600"], start_new_session=True)
    made = []
    for name in ("one", "two"):
        with monkeypatch.context() as there:
            there.setenv("HOME", str(far))
            there.delenv("XDG_STATE_HOME", raising=False)
            (far / name).mkdir()
            run = make(
                write_specs(far / name), End(State.FAILED, ""), job_id_of(Path(f"/proc/{at_work.pid}/stat").read_text())
            )
        remote_runs.keep(Known(run.run_id, HERE, "far", 1000.0 + len(made)))
        run.attempt(1).end.unlink()
        run.ledger.write_text("".join(run.ledger.read_text().splitlines(keepends=True)[:3]))
        made.append(run)
    yield made[1]
    at_work.kill()
    at_work.wait()


def ends(run: RunFolder) -> None:
    End(State.COMPLETED, "all 4 ranks ended well").write(run.attempt(1).end)


def test_a_run_is_drawn_and_continues_when_links_break(running: RunFolder, far: Path) -> None:
    lives = "9000 0 0 0 1500 2500"  # three connections fail, so that the screen is drawn while there is none
    with Terminal(WATCH, str(far), lives, "last") as terminal:
        terminal.until_shown("log of rank 0", "  a line of rank 0", "  another")
        assert terminal.frame[0].startswith(f"{running.run_id} RUNNING ━━━")
        terminal.until("the pipe broke; trying again")
        terminal.until("q leaves; the run continues", len(bare(terminal.written)))
        running.attempt(1).rank_log(0).write_text("a new line\n")
        terminal.until_shown("log of rank 0", "  a new line")
        ends(running)
        assert terminal.ended() == 0 and terminal.restored
    assert "state        COMPLETED: all 4 ranks ended well" in bare(terminal.written)
    assert remote_runs.find("last").last.state is State.COMPLETED, "the state is remembered"


@pytest.mark.parametrize(("leave", "code"), [("q", 1), ("\x03", 130)], ids=["q", "ctrl-C"])
def test_many_runs_are_drawn_and_left(leave: str, code: int, running: RunFolder, far: Path) -> None:
    with Terminal(WATCH, str(far), "", *(["*"] if code == 1 else [])) as terminal:
        at = terminal.until("rows 1-2 of 2")
        terminal.press("jj\r")
        at = terminal.until("log of rank 0", at)
        terminal.press("\x1b")
        terminal.until("RUN ", at)
        terminal.press(leave)
        assert terminal.ended() == code and terminal.restored


def news(watching: Watching) -> dict[str, Any]:
    return json.loads(watching.news(-1, 0.2))


def test_news_are_what_has_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "login_environment", dict)
    run = make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well"))
    watching, found = Watching(["none-1", run.run_id]), dict[str, Any]()
    until(lambda: found.update(news(watching)) or found.get("over"), "the end of the run")
    assert found["views"]["0"] is None and found["views"]["1"]["state"] == "COMPLETED"
    assert news(watching) == {}


@pytest.mark.parametrize(
    ("error", "why"), [(SiteError("no folder"), "no folder"), (KeyError("x"), "defect of torusrun")]
)
def test_an_error_ends_the_news(error: Exception, why: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(process, "login_environment", dict)
    monkeypatch.setattr(WatchedHere, "look", fail)
    watching = Watching([])
    with pytest.raises(SiteError, match=why):
        until(lambda: news(watching) and False, "the error")


def test_details_come_out_as_they_went_in() -> None:
    sent = json.loads(json.dumps(asdict(DETAIL)))
    found = record_of(Detail, sent)
    assert json.dumps(asdict(found)) == json.dumps(asdict(DETAIL)) and isinstance(found, Detail)
    assert type(found.nodes[0]) is type(DETAIL.nodes[0])
    assert record_of(Detail, {**sent, "said": ["\x1b[2J"]}).said == ("\\x1b[2J",)
    with pytest.raises(ValueError, match="losses"):
        record_of(Detail, {"losses": 3})
