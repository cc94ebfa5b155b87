"""ssh to the host of a rank by `shell --proxy`: a real client and sshd on this machine; the way is test_forward's."""

from __future__ import annotations

import pytest

from tests.e2e.places import WAITS, Local, started

CONFIG = (
    "from torusrun.orchestrator.beside.proxy import configuration as c; import sys; print(c(sys.argv[1], ' --rank 3'))"
)
ON_THE_PATH = 'exec python -m torusrun "$@"\n'


def ssh(local: Local, *words: str) -> tuple[int, str, str]:
    """(exit code, output, errors) of ssh there, with the torusrun of this place on the PATH."""
    path = 'PATH="$PWD/bin:$PATH" exec ssh -F ssh.config "$@"'
    said = local.run(["sh", "-c", path, "sh", *words])
    return said.returncode, said.stdout, said.stderr


@pytest.mark.needs("sshd")
def test_ssh_opens_the_host_of_a_rank_and_verifies_it(local: Local) -> None:
    run = local.submit_script(WAITS)
    host = started(run, 3)["host"]
    config = local.run(["python", "-c", CONFIG, run.name]).stdout
    local.put("ssh.config", config)
    local.run(["mkdir", "-p", "bin"])
    local.put("bin/torusrun", f"#!/bin/sh\n{ON_THE_PATH}")
    local.run(["chmod", "+x", "bin/torusrun"])
    code, output, errors = ssh(local, "torusrun", "uname -n; cat; exit 7")
    assert (code, output) == (7, f"{host}\n"), errors
    code, _, errors = ssh(local, "-o", "UserKnownHostsFile=none", "torusrun", "true")
    assert code == 255 and "Host key verification failed" in errors
    other = local.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "other"])
    assert other.returncode == 0, other.stderr
    local.put("other.config", config.replace("/ssh/id\n", "/ssh/none\n"))
    code, _, errors = ssh(local, "-F", "other.config", "-i", "other", "torusrun", "true")
    assert code == 255 and "Permission denied (publickey)" in errors
    local.release(run)
    local.watch(run)
    code, _, errors = ssh(local, "torusrun", "true")
    assert code == 255 and "this needs a running rank" in errors
