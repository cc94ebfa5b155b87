"""Makes image files of Docker and OCI from a folder: an archive like that of `docker save`, and an OCI layout."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MEDIA = "application/vnd.oci.image"


def write_docker(
    archive: Path, roots: Sequence[Path], environment: list[str], started: Mapping[str, Any] | None = None
) -> None:
    """Write an image of one layer for each root folder, with `environment` as NAME=VALUE.

    `started` are further keys of the image's configuration, as Entrypoint.
    """
    layers = {f"{number}/layer.tar": _layer(root) for number, root in enumerate(roots, 1)}
    config = _config([*layers.values()], environment, started)
    manifest = [{"Config": "config.json", "RepoTags": ["tiny:latest"], "Layers": [*layers]}]
    with tarfile.open(archive, "w") as tar:
        contents = {"config.json": config, **layers, "manifest.json": json.dumps(manifest).encode()}
        for path, content in contents.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def write_layout(folder: Path, root: Path, environment: list[str]) -> None:
    """Write the same image as an OCI layout into the new folder `folder`."""
    (folder / "blobs" / "sha256").mkdir(parents=True)
    layer = _layer(root)
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": _blob(folder, _config([layer], environment), "config.v1+json"),
        "layers": [_blob(folder, layer, "layer.v1.tar")],
    }
    named = _blob(folder, json.dumps(manifest).encode(), "manifest.v1+json")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))


def _layer(root: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(root, arcname=".", filter=_as_root)
    return packed.getvalue()


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member


def _config(layers: Sequence[bytes], environment: list[str], started: Mapping[str, Any] | None = None) -> bytes:
    config = {"Env": environment, **(started or {})}
    root = {"type": "layers", "diff_ids": [f"sha256:{_sum(layer)}" for layer in layers]}
    return json.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": root}).encode()


def _blob(folder: Path, content: bytes, kind: str) -> dict[str, Any]:
    (folder / "blobs" / "sha256" / _sum(content)).write_bytes(content)
    return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{_sum(content)}", "size": len(content)}


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
