"""Where a run can start: by the limits that a queue reports, and by the scheduler's own answer."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sites.recorded_clusters import (
    PBS,
    PBS_WITH_COUNTS,
    PBS_WITH_LIMITS,
    PBS_WITH_RESERVATIONS,
    RECORDED,
    SLURM,
    SLURM_WITHOUT_ACCOUNTS,
    recorded,
)
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.cli.verbs.where import soonest
from torusrun.orchestrator.remote import call
from torusrun.orchestrator.remote.call import VerbOutput
from torusrun.orchestrator.remote.host import HostRefused, LoginHost
from torusrun.orchestrator.remote.program import WaitLimits
from torusrun.orchestrator.schedulers.cluster_facts import NodeKind, Queue
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.pbs import facts as pbs
from torusrun.orchestrator.schedulers.slurm import facts as slurm
from torusrun.orchestrator.schedulers.slurm.scheduler import Slurm
from torusrun.orchestrator.sites.where import (
    BEST_FIRST,
    LATER,
    NEVER,
    NOT_KNOWN,
    NOW,
    POSSIBLE,
    Place,
    misfit,
    offered,
    table,
)

REQUEST = Request("x", 4, 2, 3, 2, 64 * 2**30, 3600.0, None, None, Path("job.out"), Path("job.err"))
KIND = NodeKind(8, 8, 128 * 2**30, 2, "v100")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


EACH = "6 cores and 2 GPUs and 64.0 GiB"
QUEUE = Queue("main", (KIND,), 7200.0, 6)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"closed": "its state is DOWN"}, "its state is DOWN"),
        ({"time_s": 1800.0}, "its longest job is 30.0 min, the run asks for 60.0 min"),
        ({"time_s": None, "nodes": None}, ""),
        ({"nodes": 2}, "its largest job has 2 nodes, the run asks for 4 nodes"),
        ({"kinds": ()}, ""),
        (
            {"kinds": (replace(KIND, nodes=3),)},
            f"it has 3 nodes with {EACH}, the run asks for 4",
        ),
        ({"kinds": (replace(KIND, nodes=3), replace(KIND, nodes=9, gpus=4))}, ""),
        (
            {"kinds": (replace(KIND, gpus=0),)},
            f"it has 0 nodes with {EACH}, the run asks for 4",
        ),
        ({"kinds": (replace(KIND, cpus=None, memory_bytes=None),)}, ""),
        ({"most": {"gpus": 7}}, "its largest job has 7 GPUs, the run asks for 8 GPUs"),
        ({"most": {"memory_bytes": 2**30}}, "its largest job has 1.0 GiB, the run asks for 256.0 GiB"),
        ({"most": {"cpus": 24, "gpus": 8}, "least": {"nodes": 4, "time_s": 3600}}, ""),
        ({"least": {"nodes": 5}}, "its smallest job has 5 nodes, the run asks for 4 nodes"),
        ({"least": {"time_s": 7200}}, "its shortest job is 2.0 h, the run asks for 60.0 min"),
        ({"ends": (QUEUE, replace(QUEUE, name="few", nodes=1))}, ""),
        (
            {"ends": (replace(QUEUE, name="a", nodes=1), replace(QUEUE, name="b", least={"nodes": 9}))},
            "a: its largest job has 1 node, the run asks for 4 nodes; "
            "b: its smallest job has 9 nodes, the run asks for 4 nodes",
        ),
    ],
)
def test_the_limits_of_a_queue_that_are_in_the_way(changed: dict[str, Any], why: str) -> None:
    assert misfit(replace(QUEUE, **changed), REQUEST) == why


def test_the_earliest_start_comes_first_and_the_impossible_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s)
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


def test_a_silent_site_is_not_taken_for_one_that_refuses(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "run.yaml").write_text("name: x\nsite: there.yaml\ncode: none\ncommand: [x]\n")
    (tmp_path / "there.yaml").write_text(f"scheduler: slurm\nlauncher: srun\nruns: {tmp_path}\n")
    with pytest.raises(UserError, match=r"is known to start the run \(not known: .*there\.yaml\): `torusrun where run"):
        soonest("run.yaml", [])


def _user_sites(home: Path, folder: Path, **sites: str) -> str:
    """Files of the user's sites, and a run file of the first."""
    of_user = home / ".config/torusrun/sites"
    of_user.mkdir(parents=True)
    for name, text in sites.items():
        (of_user / f"{name}.yaml").write_text(f"scheduler: slurm\nlauncher: srun\nruns: {folder}\n{text}")
    run_file = folder / "run.yaml"
    run_file.write_text(f"name: x\nsite: {next(iter(sites))}\ncode: none\ncommand: [x]\n")
    return str(run_file)


def test_all_sites_are_asked_at_once_and_a_broken_site_spoils_no_other(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = threading.Barrier(2)

    def places(site: str, planned: Any) -> Iterator[Place]:
        if site == "broken":
            raise ZeroDivisionError("a defect")
        if site == "closed":
            raise PermissionError(13, "Permission denied", "/gpfs/x")
        both.wait(600)  # breaks if the sites are asked in turn
        yield Place(site, "main", NOW)

    monkeypatch.setattr("torusrun.orchestrator.sites.where.places", places)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["where", _user_sites(home, tmp_path, broken="", closed="", first="", second=""), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["places"]
    assert [(answer["site"], answer["outcome"]) for answer in answers] == [
        ("first", NOW), ("second", NOW), ("broken", NOT_KNOWN), ("closed", NOT_KNOWN)
    ]  # fmt: skip
    assert "ZeroDivisionError: a defect" in answers[2]["why"] and answers[3]["why"] == "/gpfs/x: Permission denied"


def test_an_interrupt_ends_the_questions_to_all_sites(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def places(site: str, planned: Any) -> Iterator[Place]:
        os.kill(os.getpid(), signal.SIGINT)
        yield from (Place(site, str(queue), NOW) for queue in itertools.count())

    monkeypatch.setattr("torusrun.orchestrator.sites.where.places", places)
    assert main(["where", _user_sites(home, tmp_path, one="")]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_login_nodes_that_want_a_password_ask_for_it_in_turn(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []
    at_a_question = threading.Lock()

    def captured(host: LoginHost, request: Any, content: Any = (), limits: WaitLimits = call.USUAL) -> VerbOutput:
        asked.append((host.address, limits.asks))
        if not limits.asks and host.address != "open":
            raise HostRefused(f"{host.address}: Permission denied")
        assert not limits.asks or at_a_question.acquire(blocking=False), "two ask at the same time"
        if limits.asks:
            at_a_question.release()
        place = Place("", "main", NOW if host.address == "open" else LATER, start_s=0.0)
        return VerbOutput(0, json.dumps({"places": [asdict(place)]}).encode(), "")

    monkeypatch.setattr(call, "captured", captured)
    file = _user_sites(home, tmp_path, **{name: f"host: {name}\nconnect: openssh\n" for name in ("a", "b", "open")})
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert soonest(file, []).site == "open"
    assert sorted(asked[:3]) == [("a", False), ("b", False), ("open", False)] and asked[3:] == [
        ("a", True),
        ("b", True),
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    asked.clear()
    assert soonest(file, []).site == "open" and not any(asks for _, asks in asked), "nobody is there to answer"


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


PBSUSER = {"user": ["pbsuser"], "group": ["pbsuser"]}
NO_ANSWER = {  # of qsub: what it says only later, or for another reason than a limit
    "prod": "it routes: a job that none of its ends takes is dropped after qsub",
    "toclosed": "the same",
    "away": "the same",
    "halted": "it takes jobs, and begins none",
    "limited": "the same",
    "pool": "it takes jobs, and begins none with more than 3 GPUs",
    "hosts": "the server may know this host by another name",
    "maxq": "another job of the user may end",
}


def answers(folder: str) -> Iterator[tuple[Request, str, str]]:
    """(the job, its queue, the answer) of each line: nodes, time, queue, and what PBS answered to pbsuser."""
    lines = (RECORDED / "openpbs" / folder / "answers.txt").read_text().splitlines()
    for nodes, time_limit, name, answer in (line.split(" ", 3) for line in lines):
        hours, minutes, _ = map(int, time_limit.split(":"))
        asked = {"nodes": int(nodes), "time_s": 3600.0 * hours + 60 * minutes, "cpus_per_rank": 1}
        yield replace(REQUEST, **asked, memory_bytes=2 * 2**30), name, answer


def test_a_queue_that_pbs_refuses_is_never_and_no_other() -> None:
    """Each job of pbsuser asks for 2 cores, 2 GPUs and 2 GB a node."""
    queues = {queue.name: queue for queue in pbs.describe(PBS_WITH_LIMITS, PBSUSER).queues}
    recorded_answers = [*answers("limits")]
    assert len(recorded_answers) == 5 * len(queues) > 100
    for asked, name, answer in recorded_answers:
        why = misfit(queues[name], asked)
        assert name in NO_ANSWER or ("qsub:" in answer) == bool(why), (name, asked, answer, why)


def test_a_job_that_alone_is_beyond_a_limit_on_all_jobs_never_begins_in_pbs() -> None:
    queues = {queue.name: queue for queue in pbs.describe(PBS_WITH_COUNTS, PBSUSER).queues}
    recorded_answers = [*answers("counts")]
    assert len(recorded_answers) == 5 * len(queues) > 100
    for asked, name, answer in recorded_answers:
        why = misfit(queues[name], asked)
        of_groups = name in ("groupcores", "projcores") and asked.nodes == 3  # these limits are not read
        assert of_groups or ("qsub:" in answer or "Not Running" in answer) == bool(why), (name, asked, answer, why)
    assert queues["runnotme"].closed == "max_run is 0 for you"
    assert misfit(queues["workq"], replace(REQUEST, cpus_per_rank=1)).startswith("its largest job has 7 cores, ")


def test_the_queue_of_a_reservation_is_for_the_jobs_in_it_alone() -> None:
    facts = pbs.describe(PBS_WITH_RESERVATIONS, PBSUSER)
    assert [queue.name for queue in offered(facts, None)] == ["workq", "R77"], "R77 is an ordinary queue"
    for asked, name, answer in answers("reservations"):
        if name == "R77":
            continue
        (queue,) = offered(facts, name)
        why = misfit(queue, replace(asked, gpus_per_node=0, memory_bytes=None))
        never = "qsub:" in answer or "No available resources" in answer
        if name == "R0.pbs0":
            assert (queue, answer) == (offered(facts, "R0")[0], "qsub: Unknown queue"), "the script names R0"
        elif "Queue not started" not in answer:  # of those it is not known whether they will begin
            assert never == bool(why), (name, asked, answer, why)
    forged = "Variable_List = A=\nResv ID: R1.pbs0\nqueue = workq\nResv ID: R98.pbs0\nqueue = workq\n"
    forged_facts = pbs.describe(lambda argv: PBS_WITH_RESERVATIONS(argv) + forged * (argv[0] == "pbs_rstat"), PBSUSER)
    assert forged_facts.queues == facts.queues, "nobody can hide a queue by a reservation of his"
    assert offered(facts, None, "R0") == offered(facts, "R0", "workq") == [facts.reservations["R0"]]
    assert offered(facts, None, "workq") == facts.queues
    early = offered(facts, "R18")[0]
    assert not early.closed, "PBS takes jobs before a reservation begins"
    assert [kind.nodes for kind in early.kinds] == [2] and early.free is None


def test_a_routing_queue_is_impossible_if_each_of_its_ends_is() -> None:
    queues = {queue.name: queue for queue in pbs.describe(PBS_WITH_LIMITS, {"user": ["pbsuser"]}).queues}
    small = replace(REQUEST, nodes=2, memory_bytes=None)
    assert misfit(queues["prod"], small) == "", "xsmall takes it"
    assert misfit(queues["prod"], replace(small, nodes=3, time_s=5 * 3600.0)) == "", "xlong takes it"
    why = misfit(queues["prod"], replace(small, nodes=3))
    assert "xsmall: its largest job has 2 nodes" in why and "xlong: its shortest job is 4.0 h" in why
    assert misfit(queues["pool"], small) == "its largest job has 3 GPUs, the run asks for 4 GPUs"
    assert "special" in misfit(queues["toclosed"], small) and misfit(queues["away"], small) == ""


def test_gpus_of_another_type_do_not_fit() -> None:
    assert misfit(QUEUE, replace(REQUEST, gpu_type="v100")) == ""
    assert "it has 0 nodes" in misfit(QUEUE, replace(REQUEST, gpu_type="b200"))
