"""What users bring to a build, as small as it can be: wheels, an index that asks for a login, an archive of docker."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """A wheel with one module that holds its version; pip installs it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {package}\n" for package in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    sums = {n: base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).decode() for n, t in files.items()}
    record = "".join(f"{n},sha256={total.rstrip('=')},{len(files[n])}\n" for n, total in sums.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for member, text in files.items():
            packed.writestr(member, text)
    return path


class _Index(http.server.SimpleHTTPRequestHandler):
    """Serves a folder to whoever knows the login."""

    def __init__(self, *arguments: object, login: str, directory: str) -> None:
        self.expected = "Basic " + base64.b64encode(login.encode()).decode()
        super().__init__(*arguments, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == self.expected:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="wheels"')
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: pytest's output is for results."""


@contextmanager
def index(folder: Path, login: str) -> Iterator[str]:
    """The host and port where `folder` (a folder for each package) is an index for who gives `login` (user:token)."""
    handler = functools.partial(_Index, login=login, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def docker_archive(path: Path, root: Path, variables: Sequence[str]) -> None:
    """What `docker save` writes of an image with one layer, the folder `root`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as layer:
        layer.add(root, arcname="", filter=_as_root)
    content = packed.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": list(variables)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": ["mine:1"], "Layers": ["layer.tar"]}]
    parts = {"config.json": json.dumps(config).encode(), "layer.tar": content}
    with tarfile.open(path, "w") as archive:
        for name, data in {**parts, "manifest.json": json.dumps(manifest).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member
