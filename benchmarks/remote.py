"""A log followed from a laptop while its link is cut: three times for 30 s, once for 5 minutes. As root on Debian.

`python -m benchmarks.remote [CUT_S...]` prints the lost and doubled lines, the connections, and the time from each cut
to new lines; its exit code is 0 only if every line arrived once and in order. Cuts are `ip link set down`.
"""

from __future__ import annotations

import sys
import threading
import time

from tests.lab.cluster.settings import REPO
from tests.lab.cluster.user import python
from tests.lab.login.laptop import LOGIN_ADDRESS
from tests.lab.login.place import FOLDER, USER, Away, alone, checkout, make_user

CUTS_S = (30.0, 30.0, 30.0, 300.0)
BETWEEN_S, EVERY_S = 20.0, 0.25
SITE = "host: {host}\nscheduler: local\nlauncher: spawn\npython: {python}\nnode: {{ranks: 1, interface: lo}}\n"
PROGRAM = "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; sleep {every}; done"


def main() -> int:
    cuts_s = tuple(map(float, sys.argv[1:])) or CUTS_S
    with alone():
        make_user()
        source = checkout()
        place = Away(FOLDER, USER, python(REPO, source), source)
        try:
            place.start()
            return followed(place, cuts_s)
        finally:
            place.stop()


def followed(place: Away, cuts_s: tuple[float, ...]) -> int:
    laptop = place.laptop
    lines = int((sum(cuts_s) + BETWEEN_S * (len(cuts_s) + 1)) / EVERY_S)
    laptop.put("site.yaml", SITE.format(host=f"{USER}@{LOGIN_ADDRESS}", python=laptop.python))
    laptop.put("run/program.sh", PROGRAM.format(lines=lines, every=EVERY_S))
    laptop.put("run/run.yaml", "name: cut\nsite: ../site.yaml\ntime: 1h\ncommand: [sh, program.sh]\n")
    run_id = laptop.torusrun("submit", "run/run.yaml").stdout.strip()
    follower = laptop.begin("logs", run_id, "--follow")
    came: list[tuple[float, str]] = []
    reader = threading.Thread(
        target=lambda: came.extend((time.monotonic(), line.strip()) for line in follower.stdout or [])
    )
    reader.start()
    for cut_s in cuts_s:
        time.sleep(BETWEEN_S)
        laptop.unplug()
        time.sleep(cut_s)
        before, plugged_s = len(came), time.monotonic()
        laptop.plug()
        while len(came) == before and reader.is_alive():
            time.sleep(0.05)
        print(f"cut for {cut_s:g} s: lines again {time.monotonic() - plugged_s:.1f} s after it", flush=True)
    reader.join()
    got, wanted = [line for _, line in came], [f"line {number}" for number in range(1, lines + 1)]
    doubled = len(got) - len(set(got))
    print(f"{lines} lines written, {len(set(wanted) - set(got))} lost, {doubled} doubled, in order: {got == wanted}")
    print(f"{place.login.connections()} connections; exit code {follower.wait()}")
    return 0 if got == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
