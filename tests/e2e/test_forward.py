"""A port beside a rank, reached from the user's side: the same in every place, with a real job around it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.places import WAITS, Place, started, until

LARGE_BYTES = 30_000_000
SERVER = "python3 -u -m http.server 0 --bind 127.0.0.1"  # which says first on which port it is
SERVES = f"""if test "$RANK" = 3; then
    head -c {LARGE_BYTES} /dev/zero > large
    {SERVER} > served 2>&1 & server=$!
fi
{WAITS}
test -z "$server" || kill "$server"
"""
FORWARDS = 'exec "$@" > forward.out 2> forward.err'
CLIENT = """
import sys, threading, urllib.request
def fetch(name):
    with urllib.request.build_opener().open(f"http://{sys.argv[1]}/{name}", timeout=60) as answer:
        print(name, len(answer.read()))
threads = [threading.Thread(target=fetch, args=[name]) for name in ("large", *9 * ["placement.json"])]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def served_on(output: Path) -> str:
    """The port of SERVER, by its output."""
    said = until(lambda: output.exists() and re.match(r"Serving HTTP on .* port (\d+) ", output.read_text()), "a port")
    return str(said[1])


def fetched(place: Place, address: str) -> list[str]:
    return sorted(place.run(["python", "-c", CLIENT, address]).stdout.splitlines())


def test_a_port_of_a_ranks_host_until_its_attempt_ends(place: Place) -> None:
    run = place.submit_script(SERVES)
    host, folder = started(run, 3)["host"], run / "attempts/1"
    port = served_on(folder / "served")
    words = ["python", "-m", "torusrun", "forward", run.name, port, "--rank", "3"]
    out, errors = place.folder / "forward.out", place.folder / "forward.err"
    forward = place.start(["sh", "-c", FORWARDS, "sh", *words])
    address = until(lambda: out.exists() and out.read_text().strip(), "the address of the forward")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    files = [f"large {LARGE_BYTES}", *9 * [f"placement.json {(folder / 'placement.json').stat().st_size}"]]
    until(lambda: fetched(place, address) == files, "all files from the server beside the rank")
    refused = place.torusrun("forward", run.name, port, "--rank", "99")
    assert refused.returncode == 2 and f"--rank 99: {run.name} has ranks 0 to " in refused.stderr
    place.release(run)
    assert forward.wait(120) == 0, errors.read_text()
    assert f"forwards to port {port} of {host}; Ctrl-C ends it" in errors.read_text()
    assert f"attempt 1 of {run.name} has ended (COMPLETED: " in errors.read_text()
