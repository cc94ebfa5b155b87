"""Ctrl-C in the middle of a verb: one line, exit code 130, nothing half written, and the same command works again."""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator.cli.main import main

SAID = "torusrun: interrupted; submitted runs continue\n"
CALLS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "link", "symlink", "scandir")
VERBS = {
    "status": "--all", "reproduce": "last --compare last",
    "export": "last out", "report": "last -o out/report.html",
    "collect": "last out/new --only checkpoints/last,attempts", "rm": "last --yes",
    "gc": "--yes --site ./site.yaml", "examples": "programs/ddp --save out/ddp.yaml",
    "run": "--save out/run.yaml -- true",
}  # fmt: skip


class Calls:
    """Counts the calls that read or change the file system, and interrupts before one of them."""

    def __init__(self) -> None:
        self.made, self.interrupts = 0, -1

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **named: Any) -> Any:
            self.made += 1
            if self.made == self.interrupts:
                raise KeyboardInterrupt
            return call(*given, **named)

        return counting

    @contextmanager
    def counting(self, interrupts: int = -1) -> Iterator[None]:
        self.made, self.interrupts = 0, interrupts
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self.counted(getattr(os, name)))
            for module in (builtins, io):
                patch.setattr(module, "open", self.counted(module.open))
            yield


def sizes(home: Path) -> dict[str, int]:
    """The size of each file that a user sees, by its path."""
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    return {name: path.stat().st_size for path in files if "/." not in (name := f"/{path.relative_to(home)}")}


def hidden(home: Path) -> set[str]:
    """The names with a leading dot where verbs write."""
    return {path.name for path in (home / "out").rglob(".*")}


@pytest.mark.parametrize(("verb", "words"), VERBS.items())
def test_an_interrupted_verb_leaves_nothing_half_done(
    verb: str, words: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(write_specs(home), DONE)
    (home / "out").mkdir()
    monkeypatch.chdir(home)
    before, command, calls = home.with_name("before"), [verb, *words.split()], Calls()
    shutil.copytree(home, before, symlinks=True)
    with calls.counting():
        assert main(command) == 0, capsys.readouterr().err
    made, after = calls.made, sizes(home)
    for point in {1, made // 2, made - 1, made} - {0, -1}:
        shutil.rmtree(home)
        shutil.copytree(before, home, symlinks=True)
        os.chdir(home)
        capsys.readouterr()
        with calls.counting(interrupts=point):
            code = main(command)
        if calls.made < point:  # something was cached
            continue
        said, where = capsys.readouterr(), f"interrupted at call {point} of {made}"
        assert code == 130 and said.err.endswith(SAID) and "Traceback" not in said.err, f"{where}: {code} {said.err}"
        halves = {
            name for name, size in sizes(home).items() if size < 0.9 * after.get(name, sizes(before).get(name, 0))
        }
        assert not halves, f"{where}: half written: {halves}"
        code = main(command)
        said = capsys.readouterr()
        is_done = "exists already" in said.err or "there is no run 'last'" in said.err
        assert code == 0 or is_done, f"{where}, then: {said.err}"
        assert sizes(home).keys() == after.keys(), f"{where}, then: {sizes(home).keys() ^ after.keys()}"
        assert not hidden(home), f"{where}, then: {hidden(home)}"
