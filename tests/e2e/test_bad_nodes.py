"""Bad nodes on real schedulers: left out of requests, asked for if there are no others, drawn again once forgiven."""

import pytest

from tests.e2e.places import WAITS, Place, ledger, started, until

# An attempt of another run has lost the host before.
BLAME = """
import sys
from torusrun.orchestrator.run.bad_nodes.memory import blame
blame(sys.argv[1], [sys.argv[2]], "lost", "", run="earlier", attempt=1, certain=False)
"""


def nodes(place: Place, *words: str) -> str:
    said = place.succeeds("nodes", *words)
    return said.stdout


def test_a_bad_node_is_left_out_while_there_are_others_and_until_it_is_forgiven(place: Place) -> None:
    if not place.excludes:
        pytest.skip("its requests cannot leave out hosts")
    site = place.site("shunned.yaml", forget_bad_nodes="1h")  # with a memory of its own
    run = place.submit_script("true", "--set", f"site={site}")
    assert place.watch(run).returncode == 0
    (used,) = ledger(run, "started")
    host = used["hosts"][0]
    nodes(place, "add", host, "nosuch", "--site", site, "--reason", "a slow link")

    run = place.submit_script("true", "--set", f"site={site}")
    assert place.watch(run).returncode == 0, "Slurm refuses a request that names a host which it does not have"
    submitting, begun = ledger(run, "submitting", "started")
    assert host not in begun["hosts"] and submitting["left_out"] == {host: "a slow link"}
    assert f"without {host} (a slow link)" in place.torusrun("status", run.name, "--long").stdout

    place.write_script("true")
    everything = ("script.yaml", "--set", f"site={site}", "--set", "nodes=4", "--set", "grid=auto", "--wait")
    said = place.torusrun("submit", *everything)
    kept = f"bad, but still requested: {host} (a slow link): the run takes 4 nodes, and the scheduler has 4"
    assert said.returncode == 0 and kept in said.stderr, said.stderr

    assert host in nodes(place, "forgive", host, "--site", site)
    said = place.torusrun("submit", "script.yaml", "--set", f"site={site}", "--dry-run", "--quiet")
    assert host not in said.stdout, said.stdout
    assert f"{host} " not in nodes(place, "--site", site), "it is forgiven"


def test_a_node_that_dies_is_not_drawn_again(place: Place) -> None:
    if place.power_off is None or place.power_on is None or place.cluster != "slurm":
        pytest.skip("one scheduler is enough: the others record the end in the same way")
    site = place.site("fragile.yaml", forget_bad_nodes="1h")
    run = place.submit_script(WAITS, "--set", f"site={site}")
    host = started(run, 3)["host"]
    assert place.run(["python", "-c", BLAME, site, host]).returncode == 0
    place.power_off(host)
    try:
        until(lambda: place.view(run)["state"] == "NODE_FAIL", "the host's end to be noticed", 120)
    finally:
        place.power_on(host)
    said = place.torusrun("resume", run.name)
    assert said.returncode == 0 and f"left out: {host} (lost twice)" in said.stderr, said.stderr
    place.run(["touch", f"{run}/attempts/2/released"])
    assert place.watch(run).returncode == 0
    assert host not in ledger(run, "started")[-1]["hosts"]
    assert f"{host}" in nodes(place, "forgive", "--all", "--site", "fragile")
