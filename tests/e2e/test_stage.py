"""What a run stages: every rank reads it from its node's own disk, and the next attempt finds the copies there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.e2e.places import Local, Place

READS = "cat $TORUSRUN_STAGED/data/deep/file $TORUSRUN_STAGED/named; test $TORUSRUN_ATTEMPT = 2"


def staged(run: Path, attempt: int) -> dict[str, Any]:
    done = json.loads((run / f"attempts/{attempt}/ranks/staged.json").read_text())["done"]
    assert done.keys() == {
        row[1] for row in json.loads((run / f"attempts/{attempt}/placement.json").read_text())["slots"]
    }
    return {host: each["bytes"] for host, each in done.items()}


def test_every_rank_reads_the_copy_of_its_node_which_the_next_attempt_finds(place: Place) -> None:
    assert place.run(["mkdir", "-p", "staged/deep"]).returncode == 0
    place.put("staged/deep/file", f"of the folder {os.urandom(8).hex()}\n")
    place.put("single", "of the file\n")
    sources = f"stage=[data={place.folder}/staged, named={place.folder}/single]"
    of_node = f"{place.folder}/node" if isinstance(place, Local) else "/tmp/e2e-staged"  # a node has its own /tmp
    run = place.submit_script(READS, "--set", sources, "--set", f"site={place.site('staging.yaml', stage=of_node)}")
    place.watch(run)
    assert place.view(run)["state"] == "FAILED" and all(staged(run, 1).values())
    place.succeeds("resume", run.name)
    place.watch(run)
    assert place.view(run)["state"] == "COMPLETED"
    first, second = staged(run, 1), staged(run, 2)  # a scheduler may choose other nodes
    assert [host for host in second if not second[host]] == [host for host in second if host in first]
    logs = [*(run / "attempts/2/logs").glob("rank-*.log")]
    assert len(logs) > 1 and all(
        "of the folder" in log.read_text() and "of the file" in log.read_text() for log in logs
    )
