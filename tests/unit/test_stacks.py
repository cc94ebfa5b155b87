"""Stacks of a program that writes none itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from torusrun.orchestrator.job.hangs.hang import stack
from torusrun.orchestrator.job.ranks import rank_program

# Of py-spy 0.4.3, with the home of another user.
DUMP = """Process 598: python mine.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 598 (idle): "MainThread"
    Condition.wait (/usr/lib/python3.11/threading.py:320)
    Event.wait (/usr/lib/python3.11/threading.py:622)
    train (/home/me/mine.py:11)
    <module> (/home/me/mine.py:15)
Thread 600 (active+gil): "Thread-1 (read)"
    read (/home/me/mine.py:7)
    Thread.run (/usr/lib/python3.11/threading.py:975)
    Thread._bootstrap_inner (/usr/lib/python3.11/threading.py:1038)
    Thread._bootstrap (/usr/lib/python3.11/threading.py:995)
"""


def test_the_main_thread_of_py_spys_output_is_read_as_faulthandlers() -> None:
    text = rank_program.as_faulthandler(DUMP, 598)
    assert text.startswith('Thread 0x0000000000000258 (most recent call first):\n  File "/home/me/mine.py", line 7 in')
    assert stack(text.splitlines()) == [
        "/usr/lib/python3.11/threading.py:320 Condition.wait", "/usr/lib/python3.11/threading.py:622 Event.wait",
        "/home/me/mine.py:11 train", "/home/me/mine.py:15 <module>",
    ]  # fmt: skip
    assert rank_program.as_faulthandler("Error: Failed to open process\n", 1) == ""


@pytest.mark.parametrize(("does", "frames"), [("exec cat dump", 4), ("exec sleep 1000", 0), ("exit 1", 0)])
def test_py_spy_is_used_if_it_is_there_and_ended_if_it_hangs(
    does: str, frames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dump").write_text(DUMP)
    (tmp_path / "py-spy").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin; cd {tmp_path}; {does}\n")
    (tmp_path / "py-spy").chmod(0o755)
    log = tmp_path / "log"
    log.write_text("step=3\n")
    monkeypatch.setenv("PATH", "/nowhere")
    assert not rank_program.by_py_spy(598, log)
    assert log.read_text() == "step=3\n"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rank_program, "PY_SPY_S", 0.5 if "sleep" in does else 60.0)
    assert rank_program.by_py_spy(598, log) is (frames > 0)
    assert len(stack(log.read_text().splitlines())) == frames
