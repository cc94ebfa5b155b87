"""The ways in which a file of a run folder can be damaged, or something else be put into its place."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import machine

SPARSE_BYTES = 1 << 30


def missing(path: Path, content: bytes) -> None:
    pass


def empty(path: Path, content: bytes) -> None:
    path.touch()


def half(path: Path, content: bytes) -> None:
    path.write_bytes(content[: len(content) // 2])


def nul_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(b"\0" * max(len(content), 100))


def random_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(random.Random(1).randbytes(max(len(content), 100)))


def invalid_utf8(path: Path, content: bytes) -> None:
    path.write_bytes(b"\xff\xfe\x80" + content.replace(b"e", b"\xe9"))


def json_null(path: Path, content: bytes) -> None:
    path.write_text("null\n")


def json_list(path: Path, content: bytes) -> None:
    path.write_text('[1, "two", null, []]\n')


def wrong_types(path: Path, content: bytes) -> None:
    """Every value of a JSON file, or of JSON lines, of another type; other files become an object."""
    try:
        path.write_text(json.dumps(_other(json.loads(content))))
    except ValueError:
        try:
            rows = [json.dumps(_other(json.loads(line))) for line in content.splitlines()]
        except ValueError:
            rows = ['{"schema": "1", "state": ["COMPLETED"]}']
        path.write_text("\n".join(rows) + "\n")


def _other(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _other(item) for key, item in value.items()}
    if isinstance(value, str):
        return [value]
    return {"was": value} if isinstance(value, list) else f"{value}"


def huge_numbers(path: Path, content: bytes) -> None:
    """Every number of JSON, or of JSON lines, without end."""
    digits = set("0123456789")
    text = content.decode("utf-8", "replace")
    numbers = {word.strip(",]}") for word in text.split() if set(word.strip(",]}")) <= digits | {"."}}
    for number in numbers - {"", "."}:
        text = text.replace(f" {number}", " 1e400")
    path.write_text(text)


def nested_deeply(path: Path, content: bytes) -> None:
    path.write_text('{"state":' + "[" * 200_000)


def long_number(path: Path, content: bytes) -> None:
    path.write_text('{"schema": ' + "9" * 5000 + "}\n")


def huge(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    os.truncate(path, SPARSE_BYTES)


def fifo(path: Path, content: bytes) -> None:
    os.mkfifo(path)


def folder(path: Path, content: bytes) -> None:
    path.mkdir()


def link_to_a_device(path: Path, content: bytes) -> None:
    path.symlink_to("/dev/zero")


def link_to_itself(path: Path, content: bytes) -> None:
    path.symlink_to(path.name)


def unreadable(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0)


WAYS: list[Callable[[Path, bytes], None]] = [
    missing, empty, half, nul_bytes, random_bytes, invalid_utf8, json_null, json_list, wrong_types, huge_numbers,
    nested_deeply, long_number, huge, fifo, folder, link_to_a_device, link_to_itself,
]  # fmt: skip
if machine.why_not("read"):
    WAYS.append(unreadable)


def do(way: Callable[[Path, bytes], None], path: Path) -> None:
    """Damage a file or a folder."""
    if path.is_dir():
        content = b""
        shutil.rmtree(path)
    else:
        content = path.read_bytes()
        path.unlink()
    way(path, content)
