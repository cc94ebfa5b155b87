"""Arguments that verbs refuse: one error that says what to give, and nothing is submitted or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.base.states import State
from orchestrator.cli.main import main
from orchestrator.runs.folder.records import End
from tests.unit.run_folders import make, write_specs

REFUSED = {
    "submit RUN --in last --dry-run": "--in submits nothing to a scheduler: leave out --dry-run and --print-script",
    "submit RUN --in last --after last": "leave out --after",
    "submit RUN --in last": "there is no held allocation; `torusrun hold RUN.yaml` makes one",
    "submit RUN --after gone": "there is no run 'gone'",
    "submit RUN --set grid=3x1": "grid",
    "submit RUN --set nosuch=1": "nosuch",
    "hold RUN --time soon": "--time",
    "hold RUN --idle=-5m": "--idle",
    "resume last": "is COMPLETED",
    "resume last --in last": "there is no held allocation",
    "cancel last": "is over already: COMPLETED",
    "reproduce last --json": "--json goes with --compare",
    "reproduce last --compare gone": "there is no run 'gone'",
    "shell last": "is COMPLETED",
    "shell last --rank 7": "rank",
    "forward last 6006": "is COMPLETED",
    "forward last 70000": "PORT must be 1 to 65535, not 70000",
    "forward last 6006 --listen here:x": "--listen here:x: write a port",
    "logs last --rank 7": "rank",
    "logs last --attempt 3": "attempt",
    "logs last --grep (": "this is no regular expression",
    "calibrate RUN --from last": "is not a measuring run; submit one with --set program=measure",
    "collect last HOME": "exists already",
    "build RUN": "its 'image' is not given, so there is nothing to build",
    "plan RUN --svg picture.svg": "--svg needs --hosts FILE",
    "plan RUN --hosts nosuch": "--hosts nosuch: cannot be read: No such file or directory",
    "status --since yesterdayish": "--since",
    "doctor --wait soon": "--wait: 'soon'",
    "init ../mine --scheduler local --yes": "../mine",
    "run --gpus= -- true": "--gpus: its value is empty; write one, or leave the option out",
    "run --nodes EMPTY -- true": "--nodes: its value is empty",
    "submit RUN --after=": "--after: its value is empty",
    "status --site=": "--site: its value is empty",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_done_gets_one_clear_error(
    words: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_specs(home)
    made = make(spec, End(State.COMPLETED, "all 4 ranks ended well"))
    ledger = made.ledger.read_bytes()
    monkeypatch.chdir(home)
    try:
        given = words.replace("RUN", str(spec)).replace("HOME", str(home)).split()
        code = main(["" if word == "EMPTY" else word for word in given])
    except SystemExit as left:  # argparse
        code = left.code
    said = capsys.readouterr()
    assert code == 2 and REFUSED[words] in said.err and "Traceback" not in said.err, said
    assert list((home / "runs").iterdir()) == [made.folder] and made.ledger.read_bytes() == ledger
