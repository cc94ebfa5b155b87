"""A definition that a user wrote: built unchanged, in its own folder. All of its inputs are part of the key."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions import lint
from torusrun.orchestrator.images.definitions.inputs import Inputs, base_checksum, there
from torusrun.orchestrator.images.definitions.misfits import LOGIN_MEND, has_login
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import expanded

LOCAL = ("localimage", "docker-archive", "oci-archive", "oci")
NETWORK_FREE = (*LOCAL, "scratch")


def collect(name: str, beside: Path, training: str, compression: str, offline: bool) -> Inputs:
    """The inputs of the definition `name`, a path relative to `beside`. Raises UserError if it cannot be built."""
    path = (beside / expanded(name)).absolute()
    text = read_text(path, "definition")
    stages = lint.stages(text)
    if not stages:
        raise UserError(f"{path}: this is not a definition: it has no 'Bootstrap:' line")
    if has_login(text):
        raise UserError(f"{path}: a URL {LOGIN_MEND} of an image file that names this 'definition'")
    kinds = {stage.header.get("bootstrap", "") for stage in stages}
    if offline and (online := sorted(kinds - {*NETWORK_FREE})):
        raise UserError(f"{path}: an offline build cannot start from {online[0]!r}, which needs the network")
    local = [stage.header.get("from", "") for stage in stages if stage.header.get("bootstrap") in LOCAL]
    return Inputs(
        text,
        base_identity=" ".join(base_checksum(there(path.parent, base, "base")) for base in local),
        compression=compression,
        directory=path.parent,
        beside=tuple(_files(stages, path)),
        labels={"torusrun.training": training},
    )


def _files(stages: list[lint.Stage], path: Path) -> Iterator[tuple[str, Path]]:
    """(path as written, its place here) of everything that %files copies from this machine."""
    for stage in stages:
        for line in stage.sections.get("files", "").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                raise UserError(f"{path}: %files: {line.strip()!r} has an open quote") from None
            if not words:
                continue
            if "{{" in words[0]:
                raise UserError(f"{path}: %files: {words[0]!r} has a build argument; write the path itself")
            pattern = expanded(words[0])
            found = sorted(Path("/").glob(str(Path(glob.escape(str(path.parent)), pattern))[1:]))
            if not found:
                raise UserError(f"{path}: %files: {words[0]} does not exist")
            yield from ((f"{words[0]} {number}", entry) for number, entry in enumerate(found))
