"""A server and its client as two programs of one Slurm job: roles beside nv-sflow, in the same lab.

`python -m benchmarks.roles [--sflow PROGRAM]`, as root: it starts the Slurm lab of the tests. PROGRAM is the `sflow` of
an environment with nv-sflow (PyPI) that the lab's user can read; without it, torusrun alone is measured.

Both start the same two programs, each on a node of its own: the server answers /health two seconds after its start, and
the client sends a request every 0.2 s. Measured are the lines of the user's file, the time from the submit command to
the first request that the server answers, and what follows when the server is killed: the time until the user's command
ends, what it says, and which processes are left ten seconds later. nv-sflow 0.3.1 cannot read what Slurm 22.05 says of
an allocation that it has asked for itself, so it runs in one of `salloc`.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from tests.campaign.places import places
from tests.e2e.lab_places import Slurm
from tests.waiting import until

SERVER = """
import http.server, sys, time
began, first = time.time(), True
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global first
        ready = time.time() > began + 2
        if self.path == "/answer" and first:
            first = False
            open(sys.argv[3], "w").write(str(time.time()))
        self.send_response(200 if ready else 503)
        self.end_headers()
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
CLIENT = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1] + "/answer", timeout=10)
    time.sleep(0.2)
"""
TORUSRUN = """name: served
site: site.yaml
code: served
roles:
  server: {command: [python3, server.py, 0.0.0.0, "{port}", FIRST], ready: {http: /health}}
  client: {main: true, ranks_per_node: 1, command: [python3, client.py, "{server.url}"], after: [server]}
"""
SFLOW = """version: "0.1"
backends:
  - name: cluster
    type: slurm
    default: true
    account: none
    partition: PARTITION
    time: "00:05:00"
    nodes: 2
    gpus_per_node: 0
workflow:
  name: served
  tasks:
    - name: server
      resources: {nodes: {indices: [0]}}
      script: [python3 FOLDER/server.py 0.0.0.0 8123 FIRST]
      probes:
        readiness:
          http_get: {url: "http://${{ backends.cluster.nodes[0].ip_address }}:8123/health"}
          interval: 1
          timeout: 60
    - name: client
      resources: {nodes: {indices: [1]}}
      depends_on: [server]
      script: ["python3 FOLDER/client.py http://${{ backends.cluster.nodes[0].ip_address }}:8123"]
"""
LONGEST_S = 120.0
LATER_S = 10.0


def measured(place: Slurm, command: list[str], first: Path, text: str) -> dict[str, object]:
    """Start a user's command, wait for the first answered request, kill the server, and see what follows."""
    began_s = time.time()
    with (place.folder / "said").open("w") as said:
        user = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, **place.lab.as_user(place.folder, None))
        try:
            until(first.exists, f"a request of {command[0]}'s client", LONGEST_S)
        except AssertionError:
            print((place.folder / "said").read_text())
            raise
        started_s = float(first.read_text()) - began_s
        time.sleep(1.0)
        struck_s = time.time()
        for pid in _servers():
            subprocess.run(["kill", f"-{int(signal.SIGKILL)}", str(pid)], check=False)
        try:
            code: int | None = user.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            code = None
        ended_s = time.time() - struck_s
    time.sleep(LATER_S)
    left = [*_programs("server.py"), *_programs("client.py")]
    if code is None:
        user.kill()
    tail = [line.strip() for line in (place.folder / "said").read_text(errors="replace").splitlines() if line.strip()]
    return {
        "lines of the file": len([line for line in text.splitlines() if line.strip()]),
        "s to the first request": round(started_s, 1),
        "s from the kill to the end of the command": round(ended_s, 1) if code is not None else f"over {LONGEST_S:g}",
        "exit code": code,
        "processes left": len(left),
        "says": tail[-6:],
    }


def _programs(name: str) -> list[int]:
    said = subprocess.run(["pgrep", "-f", rf"^\S*python3 \S*{name}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in said.stdout.split()]


def _servers() -> list[int]:
    return _programs("server.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sflow", metavar="PROGRAM", help="the sflow of nv-sflow")
    asked = parser.parse_args()
    with ExitStack() as stack:
        place = places(["slurm"], stack)["slurm"]
        assert isinstance(place, Slurm)
        place.run(["mkdir", "-p", "served"])
        place.put("served/server.py", SERVER)
        place.put("served/client.py", CLIENT)
        folder = place.folder / "served"
        partition = re.search(r"^queue: *(\S+)", place.site_text(), re.MULTILINE)
        words = {"FOLDER": str(folder), "PARTITION": partition[1] if partition else "batch"}
        python = str(place.lab.python)
        own = [python, "-m", "torusrun", "submit", "torusrun.yaml", "--wait"]
        tools = {"torusrun": (TORUSRUN, own)}
        if asked.sflow:
            tools["nv-sflow"] = (SFLOW, ["salloc", "--nodes=2", asked.sflow, "run", "nv-sflow.yaml"])
        for name, (text, command) in tools.items():
            first = folder / f"first-{name}"
            for word, value in {**words, "FIRST": str(first)}.items():
                text = text.replace(word, value)  # in place of words of the files above
            place.put(f"{name}.yaml", text)
            print(json.dumps({name: measured(place, command, first, text)}, indent=1), flush=True)


if __name__ == "__main__":
    main()
