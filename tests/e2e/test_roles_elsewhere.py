"""A run that begins once a role of another run is ready, with its place in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.e2e.places import Local, ledger, until
from tests.e2e.test_roles import SERVER

# The main role of the served run: it lasts until the file `over` is beside its code.
LASTS = "import pathlib, time\nwhile not pathlib.Path('over').exists():\n    time.sleep(0.1)\n"
CLIENT = """
import os, urllib.request
address, port, hosts = (os.environ[f"TORUSRUN_SERVER_{name}"] for name in ("ADDR", "PORT", "HOSTS"))
print(hosts, urllib.request.urlopen(f"http://{address}:{port}/", timeout=10).read().decode())
"""


ALONE = {"ranks_per_node": 1, "command": ["python3", "client.py"]}


def submitted(place: Local, name: str, spec: Mapping[str, object], *words: str) -> Path:
    common = {"name": name, "site": "site.yaml", "code": "code"}
    (place.folder / f"{name}.yaml").write_text(yaml.safe_dump({**common, **spec}))
    said = place.torusrun("submit", f"{name}.yaml", *words)
    assert said.returncode == 0, said.stderr
    return Path(place.view(said.stdout.split()[0])["folder"])


def test_a_run_begins_once_a_role_of_another_is_ready_and_has_its_place(tmp_path: Path) -> None:
    place = Local(tmp_path)
    (place.folder / "code").mkdir()
    for name, text in (("server.py", SERVER), ("lasts.py", LASTS), ("client.py", CLIENT)):
        (place.folder / "code" / name).write_text(text)
    server = {"command": ["python3", "server.py", "{server.address}", "{port}"], "ready": {"http": "/"}}
    never = {"command": ["sleep", "600"], "ready": {"file": "never"}}
    roles = {"server": server, "never": never}
    mains = {"main": {"main": True, "ranks_per_node": 1, "command": ["python3", "lasts.py"]}}
    served = submitted(place, "served", {"roles": {**roles, **mains}})
    client = submitted(place, "client", ALONE, "--after", f"{served.name}:server")
    late = submitted(place, "late", ALONE, "--after", f"{served.name}:never")
    assert place.watch(client).returncode == 0
    host = place.view(served)["hosts"][0]
    assert (client / "attempts/1/logs/rank-0000.log").read_text() == f"{host} 42\n"
    waits = f"it waits for never of {served.name}"
    until(lambda: waits in place.torusrun("status", late.name).stdout, "the other run to say what it waits for")
    (served / "code/over").touch()
    assert place.watch(served).returncode == 0
    assert place.watch(late).returncode != 0
    (end,) = ledger(late, "ended")
    assert f"{served.name} is COMPLETED" in end["reason"] and not (late / "attempts/1/launch.json").exists()
    said = place.torusrun("submit", "late.yaml", "--after", f"{served.name}:server")
    assert said.returncode == 2 and "its roles will not be ready" in said.stderr, said.stderr
