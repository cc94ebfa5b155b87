"""A service in an image and a main role with a Python of its own, with a stand-in for the container's runtime."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path

import yaml

from tests.e2e.places import Local

# Runs the program here, with the variables that the runtime would pass, and the image's name in IN_IMAGE.
RUNTIME = """
import os, sys
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("apptainer version 1.4.0"))
at = next(number for number, word in enumerate(words) if word.endswith(".sif"))
if "--pwd" in words:
    os.chdir(words[words.index("--pwd") + 1])
of_runtime = "APPTAINERENV_"
passed = {name[len(of_runtime):]: value for name, value in os.environ.items() if name.startswith(of_runtime)}
os.execvpe(words[at + 1], words[at + 1 :], {**os.environ, **passed, "IN_IMAGE": os.path.basename(words[at])})
"""
SERVER = """
import os, socket, sys
listening = socket.create_server(("", int(sys.argv[1])))
while True:
    connection, _ = listening.accept()
    connection.sendall(os.environ.get("IN_IMAGE", "no image").encode())
    connection.close()
"""
CLIENT = """
import os, socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as server:
    print("the server is in", server.recv(100).decode(), "and I in", os.environ.get("IN_IMAGE", "no image"))
print(sys.prefix, os.environ["VIRTUAL_ENV"])
"""


def test_a_service_is_in_an_image_and_the_main_role_has_a_python_of_its_own(tmp_path: Path) -> None:
    place = Local(tmp_path)
    (runtime := tmp_path / "apptainer").write_text(f"#!{sys.executable}\n{RUNTIME}")
    runtime.chmod(0o755)
    site = place.folder / "site.yaml"
    site.write_text(f"{site.read_text()}container: {{runtime: {runtime}}}\n")
    (image := tmp_path / "served.sif").write_text("an image")
    venv.create(tmp_path / "own")
    (place.folder / "code").mkdir()
    (place.folder / "code/server.py").write_text(SERVER)
    (place.folder / "code/client.py").write_text(CLIENT)
    server = {"command": ["python3", "server.py", "{port}"], "ready": {"tcp": True}, "image": str(image)}
    main = {"main": True, "ranks_per_node": 1, "environment": {"venv": str(tmp_path / "own")}}
    client = {"command": ["python3", "client.py", "{server.address}", "{server.port}"], "after": ["server"], **main}
    spec = {"name": "x", "site": "site.yaml", "code": "code", "roles": {"server": server, "client": client}}
    (place.folder / "run.yaml").write_text(yaml.safe_dump(spec))
    said = place.torusrun("submit", "run.yaml", "--wait")
    assert said.returncode == 0, said.stdout + said.stderr
    run = Path(place.view(said.stdout.split()[0])["folder"])
    log = (run / "attempts/1/logs/rank-0000.log").read_text().splitlines()
    own = str(tmp_path / "own")
    assert log == ["the server is in served.sif and I in no image", f"{own} {own}"]
    assert [*json.loads((run / "images.json").read_text())["images"]] == [str(image)]
    assert not (run / "image.json").exists()
    image.write_text("another image")
    said = place.torusrun("reproduce", run.name)
    assert said.returncode == 2 and "served.sif is not the image that" in said.stderr, said.stderr
