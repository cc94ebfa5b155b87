"""The users' parts of a build, as small as possible: wheels, and an index with a login."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """Make a wheel with one module that holds its version; pip can install it."""
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
    """Serves a folder to clients with the login."""

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
    """The host and port of an index of `folder` (a folder for each package), for clients with `login` (user:token)."""
    handler = functools.partial(_Index, login=login, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
