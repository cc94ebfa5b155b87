"""The times and the identity in a SIF are the same for the same content."""

import os
import struct
from dataclasses import replace
from pathlib import Path

from tests.unit.containers.test_build import ready
from torusrun.orchestrator.images import sif
from torusrun.orchestrator.images.builds.build import Options, build
from torusrun.orchestrator.images.builds.cache import Cache
from torusrun.orchestrator.images.runtime import Runtime

TIMES = [1700000000, 1700000001]


def sif_bytes(identity: bytes, times: list[int], version: bytes = b"01\0") -> bytes:
    """The header, two used descriptors of 48, and the data of a SIF, field by field as sylabs/sif declares them."""
    header = struct.pack("<32s10s3s3s16s8q", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", version, b"02",
                         identity, *times, 46, 48, 4096, 585 * 48, 32176, 9)  # fmt: skip
    parts = b"".join(
        struct.pack("<i?3I3q2q2q128s384s", kind, True, kind, 1, 0, 32176, 9, 9, *times, 1000, 1000, b"part", b"")
        for kind in (1, 2)
    )
    return (header.ljust(4096, b"\0") + parts).ljust(32176, b"\0") + b"squashfs!"


def test_two_files_that_differ_in_times_and_identity_become_the_same(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sif", tmp_path / "two.sif"
    one.write_bytes(sif_bytes(b"1" * 16, TIMES))
    two.write_bytes(sif_bytes(b"2" * 16, [time + 5 for time in TIMES]))
    for path in (one, two):
        sif.fix_times(path, 1600000000)
    assert one.read_bytes() == two.read_bytes() == sif_bytes(bytes(16), [1600000000] * 2)


def test_another_format_is_not_changed(tmp_path: Path) -> None:
    for content in (
        b"",
        b"squashfs" * 100,
        sif_bytes(os.urandom(16), TIMES, b"02\0"),
        sif_bytes(bytes(16), TIMES)[:90],
    ):
        path = tmp_path / "other.sif"
        path.write_bytes(content)
        sif.fix_times(path, 1600000000)
        assert path.read_bytes() == content


def test_a_build_from_a_lock_fixes_the_sif_that_the_runtime_wrote(small: Path, tmp_path: Path) -> None:
    written, runtime = tmp_path / "written", tmp_path / "runtime"
    written.write_bytes(sif_bytes(b"1" * 16, TIMES))
    copies = f'test "${{image%.sif}}" = "$image" || cp {written} "$image"'
    runtime.write_text(f"#!/bin/sh\nfor image; do {copies}; done\n")
    runtime.chmod(0o755)
    (name, inputs), cache = ready(small), Cache(tmp_path / "images")
    for built_s, kept in ((0, sif_bytes(b"1" * 16, TIMES)), (1600000000, sif_bytes(bytes(16), [1600000000] * 2))):
        named = replace(inputs, built_s=built_s, definition=f"{inputs.definition}\n# {built_s}\n")
        made = build(name, named, cache, lambda: Runtime(str(runtime), "apptainer", (1, 4)), Options())
        assert made.path.read_bytes() == kept
