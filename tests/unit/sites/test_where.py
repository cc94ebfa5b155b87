"""Where a run can start: by the limits that a queue reports, and by the scheduler's own answer."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sites.recorded_clusters import PBS, SLURM, SLURM_WITHOUT_ACCOUNTS, recorded
from torusrun.orchestrator.schedulers.cluster_facts import NodeKind, Queue
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.pbs import facts as pbs
from torusrun.orchestrator.schedulers.slurm import facts as slurm
from torusrun.orchestrator.schedulers.slurm.scheduler import Slurm
from torusrun.orchestrator.sites.where import BEST_FIRST, LATER, NEVER, NOW, POSSIBLE, Place, misfit, table

REQUEST = Request("x", 4, 2, 3, 2, 64 * 2**30, 3600.0, None, None, Path("job.out"), Path("job.err"))
KIND = NodeKind(8, 8, 128 * 2**30, 2, "v100")
QUEUE = Queue("main", (KIND,), 7200.0, 6)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"closed": "its state is DOWN"}, "its state is DOWN"),
        ({"time_s": 1800.0}, "its longest job is 30.0 min, the run asks for 60.0 min"),
        ({"time_s": None, "nodes": None}, ""),
        ({"nodes": 2}, "its largest job has 2 nodes, the run asks for 4"),
        ({"kinds": ()}, ""),
        ({"kinds": (replace(KIND, nodes=3),)}, "it has 3 nodes with 6 cores and 2 GPUs and 64 GiB, the run asks for 4"),
        ({"kinds": (replace(KIND, nodes=3), replace(KIND, nodes=9, gpus=4))}, ""),
        ({"kinds": (replace(KIND, gpus=0),)}, "it has 0 nodes with 6 cores and 2 GPUs and 64 GiB, the run asks for 4"),
        ({"kinds": (replace(KIND, cpus=None, memory_bytes=None),)}, ""),
    ],
)
def test_the_limits_of_a_queue_that_are_in_the_way(changed: dict[str, Any], why: str) -> None:
    assert misfit(replace(QUEUE, **changed), REQUEST) == why


def test_the_earliest_start_comes_first_and_the_impossible_last() -> None:
    now_s = time.time()
    places = [
        Place("a", "q", NOW),
        Place("b", "q", LATER, start_s=now_s + 100),
        Place("b", "r", LATER, start_s=now_s + 7300),
        Place("c", "usual", POSSIBLE, free=0, usual=True),
        Place("c", "wide", POSSIBLE, free=9),
        Place("c", "narrow", POSSIBLE, free=1),
        Place("d", "q", NEVER, "its state is DOWN"),
    ]
    shuffled = random.Random(1).sample(places, len(places))
    assert [*table(shuffled).rows] == places
    assert [place.start for place in places[:3]] == ["now", "in 100.0 s", "in 2.0 h"]
    assert [place.possible for place in places] == [True] * 6 + [False]
    assert {place.outcome for place in places} < {*BEST_FIRST}


def test_the_start_in_slurms_answer() -> None:
    answer = "sbatch: Job 23 to start at 2026-11-20T23:37:17 using 4 processors on nodes node[1-2] in partition main"
    start_s = Slurm().start_in(answer)
    assert start_s and time.strftime("%F %T", time.localtime(start_s)) == "2026-11-20 23:37:17"
    assert Slurm().start_in("sbatch: Job 23 to start at (null)") is None


def test_slurms_idle_nodes_by_partition() -> None:
    def ask(argv: Any) -> str:
        return "main*|3\nmain*|1\nshort|2\n" if "--states=idle" in argv else SLURM(argv)

    assert [queue.free for queue in slurm.describe(ask, "labuser").queues] == [4, 2, 0]
    silent = recorded("slurm/cluster", SLURM_WITHOUT_ACCOUNTS)
    assert [queue.free for queue in slurm.describe(silent, "labuser").queues] == [None] * 3


def test_pbs_nodes_with_jobs_or_out_of_service_are_not_free() -> None:
    def ask(argv: Any) -> str:
        text = PBS(argv)
        if argv[0] == "pbsnodes":
            text = text.replace("state = free", "state = offline", 1)
        return text

    before, after = ({queue.name: queue.free for queue in pbs.describe(each).queues} for each in (PBS, ask))
    assert sum(before.values()) > sum(after.values()), (before, after)  # type: ignore[arg-type]
