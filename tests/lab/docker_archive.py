"""What `docker save` writes, made of a folder: layers, configuration and manifest.json in one tar."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path


def write(archive: Path, root: Path, environment: list[str]) -> None:
    """Write the root folder `root` as an image of one layer, with `environment` as NAME=VALUE."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(root, arcname=".")
    layer = packed.getvalue()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": environment},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": ["tiny:latest"], "Layers": ["1/layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for path, content in ((name, config), ("1/layer.tar", layer), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
