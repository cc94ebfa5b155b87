"""Makes image files of Docker and OCI from a folder: an archive like that of `docker save`, and an OCI layout."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

MEDIA = "application/vnd.oci.image"


def write_docker(archive: Path, root: Path, environment: list[str]) -> None:
    """Write the root folder `root` as an image of one layer, with `environment` as NAME=VALUE."""
    layer = _layer(root)
    config = _config(layer, environment)
    manifest = [{"Config": "config.json", "RepoTags": ["tiny:latest"], "Layers": ["1/layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        contents = {"config.json": config, "1/layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
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
        "config": _blob(folder, _config(layer, environment), "config.v1+json"),
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


def _config(layer: bytes, environment: list[str]) -> bytes:
    layers = {"type": "layers", "diff_ids": [f"sha256:{_sum(layer)}"]}
    return json.dumps(
        {"architecture": "amd64", "os": "linux", "config": {"Env": environment}, "rootfs": layers}
    ).encode()


def _blob(folder: Path, content: bytes, kind: str) -> dict[str, Any]:
    (folder / "blobs" / "sha256" / _sum(content)).write_bytes(content)
    return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{_sum(content)}", "size": len(content)}


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
