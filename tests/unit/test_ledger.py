"""The ledger under many writers and a torn line."""

import subprocess
import sys
from pathlib import Path

from orchestrator.runs import ledger


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    program = (
        "import sys; from pathlib import Path; from orchestrator.runs import ledger\n"
        "for i in range(50): ledger.append(Path(sys.argv[1]), 'e', int(sys.argv[2]), i=i, text='x' * 3000)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), str(n)]) for n in range(4)]
    assert [w.wait(timeout=60) for w in writers] == [0] * 4
    found = ledger.events(path)
    for n in range(4):
        assert [e.details["i"] for e in found if e.attempt == n] == list(range(50)), "an event was lost or torn"


def test_a_line_cut_short_is_left_out_and_the_next_event_stands(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, "submitted", 1, job="1")
    with open(path, "a") as file:
        file.write('{"t": 1, "event": "sta')
    ledger.append(path, "ended", 1, state="FAILED", reason="")
    assert [e.kind for e in ledger.events(path)] == ["submitted", "ended"]


def test_the_ledger_is_its_owners_alone(tmp_path: Path) -> None:
    ledger.append(tmp_path / "ledger.jsonl", "submitted", 1)
    assert (tmp_path / "ledger.jsonl").stat().st_mode & 0o077 == 0
