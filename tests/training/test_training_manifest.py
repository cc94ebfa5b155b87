"""Which checkpoints are complete: none that a stranger has planted or a disk has damaged; no error and no wait."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torusrun.training.checkpoint.manifest import (
    LARGEST_MANIFEST_BYTES,
    IncompleteCheckpoint,
    candidates,
    complete_checkpoints,
    compose,
    name_of,
    newest_complete,
    step_of,
    verify,
)
from torusrun.training.progress import Progress

STATE = b"weights" * 100


def write(folder: Path, step: int) -> Path:
    path = folder / name_of(step)
    path.mkdir(parents=True)
    (path / "state.pt").write_bytes(STATE)
    (path / "manifest.json").write_text(
        json.dumps(compose(Progress(step, 64 * step), step / 10, 2, {"state.pt": STATE}))
    )
    return path


def changed(path: Path, **values: Any) -> None:
    listing = {**compose(Progress(20, 1280), 2.0, 2, {"state.pt": STATE}), **values}
    (path / "manifest.json").write_text(json.dumps(listing))


def entry(content: bytes = STATE, **values: Any) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **values}


def replaced(name: str, put: Callable[[Path], object]) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        (path / name).rename(path.parent / "old")
        put(path / name)

    return harm


def bind(path: Path) -> None:
    """A socket in the file system; its name must be short."""
    home = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(home)


def link_the_checkpoint(path: Path) -> None:
    path.rename(path.parent / "real")
    path.symlink_to("real")


def file_the_checkpoint(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def raw(content: bytes) -> Callable[[Path], None]:
    return lambda path: (path / "manifest.json").write_bytes(content) and None


def claims(**values: Any) -> Callable[[Path], None]:
    return lambda path: changed(path, **values)


def lists(name: str, **values: Any) -> Callable[[Path], None]:
    return lambda path: changed(path, files={name: entry(**values)})


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "old")


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def nothing(path: Path) -> None:
    """The file is lost."""


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def name_a_file_elsewhere(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(STATE)
    changed(path, files={"../elsewhere": entry()})


def loop(path: Path) -> None:
    path.symlink_to(path.name)


WHOLE = json.dumps(compose(Progress(20, 1280), 2.0, 2, {"state.pt": STATE})).encode()
PLANTED = {
    "linked checkpoint": link_the_checkpoint,
    "checkpoint is a file": file_the_checkpoint,
    **{f"{put.__name__} as {name}": replaced(name, put) for name in ("manifest.json", "state.pt")
       for put in (link, loop, os.mkfifo, Path.mkdir, bind, link_to_zeros, huge, nothing)},
    "cut state": lambda path: (path / "state.pt").write_bytes(STATE[:-1]),
    "flipped state": lambda path: (path / "state.pt").write_bytes(b"W" + STATE[1:]),
    "file elsewhere": name_a_file_elsewhere,
    "empty": raw(b""),
    "cut": raw(WHOLE[:-10]),
    "list": raw(b"[]"),
    "too large": raw(WHOLE + b" " * LARGEST_MANIFEST_BYTES),
    "deep list": raw(b"[" * 100_000),
    "deep object": raw(b'{"files":' * 50_000),
    "NUL": raw(WHOLE.replace(b"state", b"st\0te")),
    "only NUL": raw(b"\0" * 400),
    "not UTF-8": raw(WHOLE.replace(b"state", b"st\xffte")),
    "UTF-16": raw(WHOLE.decode().encode("utf-16")),
    "number": raw(b"7"),
    "null": raw(b"null"),
    "long number": raw(WHOLE.replace(b'"step": 20', b'"step": ' + b"2" * 5000)),
    "schema 3": claims(schema=3),
    "schema far away": claims(schema=10**400),
    "schema true": claims(schema=True),
    "schema list": claims(schema=[1]),
    "another step": claims(step=21),
    "step without end": raw(WHOLE.replace(b'"step": 20', b'"step": 1e400')),
    "step text": claims(step="20"),
    "step fraction": claims(step=20.0),
    "step null": claims(step=None),
    "samples text": claims(samples="1280"),
    "samples negative": claims(samples=-1),
    "epoch text": claims(epoch="2"),
    "epoch true": claims(epoch=True),
    "epoch NaN": claims(epoch=float("nan")),
    "epoch infinite": claims(epoch=float("inf")),
    "epoch beyond floats": claims(epoch=10**400),
    "attempt negative": claims(attempt=-1),
    "attempt true": claims(attempt=True),
    "attempt list": claims(attempt=[]),
    "no files": claims(files={}),
    "files null": claims(files=None),
    "files list": claims(files=["state.pt"]),
    "files text": claims(files="state.pt"),
    "entry null": claims(files={"state.pt": None}),
    "entry number": claims(files={"state.pt": 7}),
    "entry empty": claims(files={"state.pt": {}}),
    **{f"name {name!r:.30}": lists(name) for name in (
        "../old", "..", ".", "", "/etc/passwd", "a/b", "state.pt/", "./state.pt", "st\0te", "\ud800", "state.pt\n",
        "-rf", "n" * 5000, "\u202estate")},
    "bytes negative": lists("state.pt", bytes=-1),
    "bytes text": lists("state.pt", bytes="700"),
    "bytes fraction": lists("state.pt", bytes=700.0),
    "bytes true": lists("state.pt", bytes=True),
    "bytes huge": lists("state.pt", bytes=10**30),
    "sha256 short": lists("state.pt", sha256="ab"),
    "sha256 null": lists("state.pt", sha256=None),
    "sha256 in capitals": lists("state.pt", sha256=hashlib.sha256(STATE).hexdigest().upper()),
    "sha256 list": lists("state.pt", sha256=["a"] * 64),
}  # fmt: skip


@pytest.mark.parametrize("harm", PLANTED.values(), ids=PLANTED.keys())
def test_nothing_planted_is_complete_or_ends_the_reader(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    write(tmp_path, 10)
    planted = write(tmp_path, 20)
    assert verify(planted).step == 20
    harm(planted)
    with pytest.raises(IncompleteCheckpoint, match="step-00000020") as caught:
        verify(planted)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000, "the message goes to a terminal"
    newest = newest_complete(tmp_path)
    assert newest is not None and newest.step == 10


def test_complete_ones_newest_first_and_nothing_else(tmp_path: Path) -> None:
    assert list(complete_checkpoints(tmp_path / "missing")) == []
    write(tmp_path / ".tmp-x", 30)
    (tmp_path / "step-notes.txt").write_text("mine")
    assert newest_complete(tmp_path) is None
    for step in (5, 100_000_000, 20):
        write(tmp_path, step)
    assert [checkpoint.step for checkpoint in complete_checkpoints(tmp_path)] == [100_000_000, 20, 5]
    newest = newest_complete(tmp_path)
    assert newest is not None and newest.name == "step-100000000" and newest.attempt == 2


def test_the_checksums_are_reported(tmp_path: Path) -> None:
    assert verify(write(tmp_path, 20)).sha256 == {"state.pt": hashlib.sha256(STATE).hexdigest()}


def make_a_file(path: Path) -> None:
    path.write_text("")


def make_unreadable(path: Path) -> None:
    path.mkdir(mode=0)


@pytest.mark.parametrize("make", [make_a_file, make_unreadable, loop, os.mkfifo, bind])
def test_a_folder_that_is_none_holds_no_checkpoints(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "checkpoints")
    assert candidates(tmp_path / "checkpoints") == [] and newest_complete(tmp_path / "checkpoints") is None
    assert candidates(Path("\0")) == []


def test_absurd_names_are_not_checkpoints(tmp_path: Path) -> None:
    nines = "step-" + "9" * 5000
    assert step_of(nines) is None, "Python refuses to read so long a number"
    absurd = ["step-" + "9" * 240, "step-000000007", "step-٠٠٠٠٠٠٠٧", "step-00000007\n", "step--0000007", "step-"]
    for name in absurd:
        (tmp_path / name).mkdir()
    os.mkdir(os.fsencode(tmp_path) + b"/step-0000000\xff")
    write(tmp_path, 7)
    assert [path.name for path in candidates(tmp_path)] == ["step-00000007"]
