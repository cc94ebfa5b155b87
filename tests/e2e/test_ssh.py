"""ssh to the host of a rank by `shell --proxy`: a real client, and an sshd of the user's own beside a real job."""

from __future__ import annotations

import pytest

from tests import machine
from tests.e2e.places import WAITS, Local, Place, Said, started, until
from tests.e2e.test_forward import SERVER, served_on
from tests.lab.cluster.packages import install_missing

CONFIG = (
    "from torusrun.orchestrator.beside.proxy import configuration as c; from getpass import getuser as u;"
    "import sys; print(c(sys.argv[1], ' --rank 3', u()))"
)
ON_THE_PATH = 'exec python -m torusrun "$@"\n'
SERVES = f'test "$RANK" != 3 || {{ {SERVER} > served 2>&1 & }}; {WAITS}; test -z "$!" || kill "$!"'
# As Remote-SSH of VS Code: one connection, with a shell on it that reads commands, and forwarded ports.
EDITS = 'echo "touch open; until test -e close; do sleep 0.2; done; exit 5" | ssh -F ssh.config -T "$@" torusrun sh'
FETCHES = """
import http.client, socket, sys
server = http.client.HTTPConnection("localhost", timeout=60)
server.sock = socket.socket(socket.AF_UNIX)
server.sock.connect("./port")
server.request("GET", sys.argv[1])
sys.stdout.write(server.getresponse().read().decode())
"""


def with_path(place: Place, *words: str) -> list[str]:
    """A program there, with the torusrun of this place on its PATH."""
    return ["sh", "-c", 'PATH="$PWD/bin:$PATH" exec "$@"', "sh", *words]


def ssh(place: Place, *words: str) -> Said:
    return place.run(with_path(place, "ssh", "-F", "ssh.config", *words))


@pytest.fixture
def config(place: Place) -> str:
    """What `shell RUN --rank 3 --proxy` prints, for a run to be named."""
    if isinstance(place, Local):
        if why := machine.why_not("sshd"):
            pytest.skip(why)
    else:
        install_missing({"sshd": "openssh-server", "ssh": "openssh-client"})
    place.run(["mkdir", "-p", "bin"])
    place.put("bin/torusrun", f"#!/bin/sh\n{ON_THE_PATH}")
    place.run(["chmod", "+x", "bin/torusrun"])
    return place.run(["python", "-c", CONFIG, "RUN"]).stdout


def test_ssh_opens_the_host_of_a_rank_and_verifies_it(place: Place, config: str) -> None:
    run = place.submit_script(WAITS)
    host = started(run, 3)["host"]
    place.put("ssh.config", config := config.replace("RUN", run.name))
    said = ssh(place, "torusrun", "uname -n; cat; exit 7")
    assert (said.returncode, said.stdout) == (7, f"{host}\n"), said.stderr
    said = ssh(place, "-o", "UserKnownHostsFile=none", "torusrun", "true")
    assert said.returncode == 255 and "Host key verification failed" in said.stderr
    place.run(["rm", "-f", "other", "other.pub"])
    other = place.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "other"])
    assert other.returncode == 0, other.stderr
    place.put("other.config", config.replace("/ssh/id\n", "/ssh/none\n"))
    said = ssh(place, "-F", "other.config", "-i", "other", "torusrun", "true")
    assert said.returncode == 255 and "Permission denied (publickey)" in said.stderr
    place.release(run)
    place.watch(run)
    said = ssh(place, "torusrun", "true")
    assert said.returncode == 255 and "this needs a running rank" in said.stderr


def test_an_editor_copies_files_and_forwards_a_port_over_its_shell(place: Place, config: str) -> None:
    run = place.submit_script(SERVES)
    started(run, 3)
    attempt = run / "attempts/1"
    place.put("ssh.config", config.replace("RUN", run.name))
    copied = place.run(with_path(place, "scp", "-q", "-F", "ssh.config", "ssh.config", f"torusrun:{attempt}/copied"))
    assert copied.returncode == 0, copied.stderr
    assert (attempt / "copied").read_text() == (place.folder / "ssh.config").read_text()
    place.run(["rm", "-f", "port"])
    forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"./port:127.0.0.1:{served_on(attempt / 'served')}"]
    words = EDITS.replace("open", f"{attempt}/open").replace("close", f"{attempt}/close")
    editor = place.start(with_path(place, "sh", "-c", words, "sh", *forward))
    until((attempt / "open").exists, "the shell of the editor")
    fetched = place.run(["python", "-c", FETCHES, "/copied"])
    assert fetched.stdout == (attempt / "copied").read_text(), fetched.stderr
    place.run(["touch", f"{attempt}/close"])
    assert editor.wait(120) == 5
    place.release(run)
    assert place.watch(run).returncode == 0
