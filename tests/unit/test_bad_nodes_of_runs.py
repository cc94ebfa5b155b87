"""Bad nodes from the end of an attempt to the request of the next run, and `torusrun nodes`."""

import json
from pathlib import Path

import pytest

from tests.unit.sites.recorded_clusters import GRIDENGINE, SLURM, Ask
from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.job.recorded import recorded
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.attempts import bad_hosts, keep_going
from torusrun.orchestrator.run.bad_nodes import memory, noted
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Started, Submitting
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.orchestrator.run.state.decide import Resume, Stop, Wait
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine
from torusrun.orchestrator.schedulers.interface import Scheduler
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS
from torusrun.orchestrator.schedulers.slurm.scheduler import Slurm

RUN = "nodes: 2\ntime: 1h\ntrain: {}"
SINFO = 'for n in 1 2 3 4 5; do echo "debug*|n$n"; echo "big|n$n"; done; echo \'big|n6\''


class Cluster(SlurmPrograms):
    """A Slurm of five nodes."""

    def submit(self, *words: str) -> RunFolder:
        before = set((self.home / "runs").glob("*"))
        assert main(["submit", str(self.home / "run.yaml"), *words]) == 0
        (folder,) = set((self.home / "runs").iterdir()) - before
        return RunFolder(folder)

    def ends(self, run: RunFolder, number: int = 1, host: str = "n3", cause: Cause = Cause.HOST_LOST) -> None:
        """The job of an attempt begins on n3 and n4, and loses a host."""
        ledger.append(run.ledger, Started(number, str(number), ("n3", "n4")))
        end = End(cause.state, f"lost {host}", cause=cause, hosts=(host,))
        recorded(run, run.attempt(number), lambda: end)


@pytest.fixture
def cluster(home: Path, monkeypatch: Patch) -> Cluster:
    made = Cluster(home, monkeypatch, RUN)
    made.program("sinfo", SINFO)
    return made


def excluded(run: RunFolder, number: int = 1) -> str:
    found = [line for line in run.attempt(number).script.read_text().splitlines() if "--exclude" in line]
    return found[0].partition("=")[2] if found else ""


def listed(capsys: Capsys, *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    found: list[dict[str, object]] = json.loads(prints(capsys, "nodes", *words, "--json"))["nodes"]
    return found


def test_a_host_that_two_runs_lost_is_left_out_of_every_next_request_and_the_plan_says_so(
    cluster: Cluster, capsys: Capsys
) -> None:
    first, second = cluster.submit(), cluster.submit()
    cluster.ends(first)
    recorded(first, first.attempt(1), lambda: pytest.fail("it has ended"))  # its job is begun again
    assert excluded(cluster.submit()) == "" and capsys.readouterr().err == "", "once is not enough"
    cluster.ends(second)
    third = cluster.submit()
    assert capsys.readouterr().err == "torusrun: left out: n3 (lost twice)\n"
    assert excluded(third) == "n3" and dict(read_attempt(third, 1).left_out.hosts) == {"n3": "lost twice"}
    noted = ledger.last(ledger.events(third.ledger), Submitting, 1)
    assert noted and noted.left_out == {"n3": "lost twice"}
    assert main(["resume", first.run_id, "--exclude", "n1"]) == 0
    assert excluded(first, 2) == "n1,n3" and read_attempt(first, 2).exclude == ("n1",)
    (host,) = listed(capsys)
    assert (host["host"], host["site"], host["count"], host["bad"]) == ("n3", "site", 2, True)
    assert host["runs"] == [first.run_id, second.run_id] and host["evidence"] == "lost n3"
    for verb in (["plan"], ["submit", "--dry-run"]):
        assert "left out: n3 (lost twice)" in prints(capsys, verb[0], str(cluster.home / "run.yaml"), *verb[1:])
    cluster.program("squeue", "echo '3|PENDING|Priority|'")
    assert "left out: n3 (lost twice)" in prints(capsys, "status", third.run_id)
    assert main(["nodes", "forgive", "n3.cluster"]) == 0
    assert listed(capsys) == [] and excluded(cluster.submit()) == ""


@pytest.mark.parametrize("cause", [Cause.PROGRAM, Cause.OUT_OF_MEMORY, Cause.CONNECTION, Cause.KILLED, Cause.HANG])
def test_what_is_not_the_fault_of_a_host_blames_none(cluster: Cluster, capsys: Capsys, cause: Cause) -> None:
    for _ in range(2):
        run = cluster.submit()
        ledger.append(run.ledger, Started(1, "1", ("n3", "n4")))
        end = End(cause.state, "it ended", cause=cause, hosts=("n3", "n4") if cause is Cause.HANG else ("n3",))
        recorded(run, run.attempt(1), lambda end=end: end)  # type: ignore[misc]
    assert listed(capsys) == []


def test_an_end_that_only_the_scheduler_knows_blames_the_host_of_the_jobs_own_record_alone(
    cluster: Cluster, capsys: Capsys
) -> None:
    """Its accounting names all hosts of the job, and the job may have recorded a rank that it saw killed."""
    for cause in (Cause.HOST_LOST, Cause.KILLED, None):
        run = cluster.submit()
        ledger.append(run.ledger, Started(1, "1", ("n3", "n4")))
        if cause:
            End(cause.state, "gone", certain=False, cause=cause, hosts=("n4",)).write(run.attempt(1).end)
    cluster.program("sacct", 'for job in 1 2 3; do echo "$job|NODE_FAIL|0:0|n[3-4]"; done')
    for _ in range(2):  # the second time the ledgers have the ends
        capsys.readouterr()
        assert {run["state"] for run in json.loads(prints(capsys, "status", "--json"))["runs"]} == {"NODE_FAIL"}
    assert [(host["host"], host["count"], host["bad"]) for host in listed(capsys)] == [("n4", 1, False)]
    assert "not yet: after 1 more end" in prints(capsys, "nodes")


@pytest.mark.parametrize(("heard", "blamed"), [({0, 1}, ["n4"]), ({2}, ["n3"]), ({0, 2}, []), (set(), [])])
def test_without_a_record_of_the_job_the_host_that_left_none_of_a_rank_is_blamed(
    cluster: Cluster, capsys: Capsys, heard: set[int], blamed: list[str]
) -> None:
    """The host of the supervisor, n3, may be the lost one."""
    run = cluster.submit()
    attempt = run.attempt(1)
    ledger.append(run.ledger, Started(1, "1", ("n3", "n4")))
    attempt.ranks.mkdir()
    attempt.placement.write_text(json.dumps(place(Grid((2, 2)), ["n3", "n4"], 2).as_json()))
    for rank in heard:
        RankEnd(rank, "x", 0, 1.0, exit_code=1).write(attempt.rank_end(rank))
    cluster.program("sacct", "echo '1|NODE_FAIL|0:0|n[3-4]'")
    assert main(["status"]) == 0
    assert [host["host"] for host in listed(capsys)] == blamed


def test_the_next_job_of_a_run_that_keeps_going_blames_the_host_that_the_one_before_lost(
    cluster: Cluster, capsys: Capsys
) -> None:
    assert main(["nodes", "add", "n5", "--site", str(cluster.home / "site.yaml")]) == 0
    run = cluster.submit("--set", "keep_going={attempts: 3, spares: 1}")
    ledger.append(run.ledger, Started(1, "1_0", ("n3", "n4")))
    run.attempt(1).pulse.write_text("n3\n")
    cluster.program("sacct", "echo '1_0|NODE_FAIL|0:0|n[3-4]'")
    assert isinstance(keep_going.next_step(run, keep_going.Here("1", "1_1", first=1, hosts=2), begin=True), Resume)
    assert [(host["host"], host["reason"], host["bad"]) for host in listed(capsys)] == [
        ("n3", "lost", False), ("n5", "added by its user", True)
    ]  # fmt: skip
    second = ledger.last(ledger.events(run.ledger), Submitting, 2)
    assert second and second.left_out == {"n5": "added by its user"}, "its job has the request of the first"


CHAIN = ("--set", "keep_going.attempts=9")
ALL_FIVE = (*CHAIN, "--set", "nodes=5", "--set", "grid=auto", "--set", "train.batch=65")


def chained(cluster: Cluster, capsys: Capsys, cause: Cause = Cause.BAD_HOST) -> RunFolder:
    """A run that keeps going on two of five nodes, and whose first job ended because of n3."""
    run = cluster.submit(*CHAIN)
    noted.found_bad(run, 1, {"n3": "gpus: 3, wanted 4"})
    cluster.ends(run, cause=cause)
    capsys.readouterr()
    return run


def test_jobs_that_are_given_the_same_bad_host_begin_nothing_and_the_third_ends_the_run_and_names_it(
    cluster: Cluster, capsys: Capsys
) -> None:
    run = chained(cluster, capsys)
    bad = bad_hosts.given(run, 1, ["n3.cluster", "n4"])
    assert bad == {"n3.cluster": "found bad"} and not bad_hosts.given(run, 1, ["n4", "n5"])
    second = keep_going.next_step(
        run, keep_going.Here("1", "1_1", first=1, hosts=2, bad={"n3": "found bad"}), begin=True
    )
    assert second == Wait("waits for its next job: bad hosts: n3 (found bad)")
    third = keep_going.next_step(
        run, keep_going.Here("1", "1_2", first=1, hosts=2, bad={"n3": "found bad"}), begin=True
    )
    why = "the bad host n3 ended 3 jobs in a row before any rank started"
    assert third == Stop(why, hosts=("n3",)) and not run.attempt(2).folder.exists(), "no attempt may be used up"
    said = prints(capsys, "explain", run.run_id)
    assert f"lost n3; no further attempt: {why}" in said and "cause     bad_host" in said
    assert "`torusrun nodes forgive n3`" in said and "`--exclude n3` avoids a bad host" in said


def test_a_run_that_bad_hosts_end_after_another_end_has_them_as_its_cause(cluster: Cluster, capsys: Capsys) -> None:
    run = chained(cluster, capsys, Cause.TIME_LIMIT)
    for task in (1, 2, 3):
        here = keep_going.Here("1", f"1_{task}", first=1, hosts=2, bad={f"n{task}": "lost twice", "n5": "lost twice"})
        assert isinstance(keep_going.next_step(run, here, begin=True), Wait if task < 3 else Stop), "n5, three times"
    (shown,) = json.loads(prints(capsys, "status", "--json"))["runs"]
    assert (shown["state"], shown["cause"]) == ("NODE_FAIL", "bad_host") and "bad host n5 ended" in shown["reason"]
    assert "--exclude n5" in prints(capsys, "explain", run.run_id)


def test_a_job_tries_bad_hosts_that_its_request_kept_or_that_may_be_sound_if_there_are_no_others(
    cluster: Cluster, capsys: Capsys
) -> None:
    everything = cluster.submit(*ALL_FIVE)
    half = cluster.submit(*CHAIN)
    for run in (everything, half):
        cluster.ends(run)
    assert not bad_hosts.given(everything, 1, ["n3", "n4"]), "lost twice, and it takes all hosts that there are"
    assert bad_hosts.given(half, 1, ["n3", "n4"]) == {"n3": "lost twice"}
    noted.found_bad(half, 1, {"n3": "gpus: 3, wanted 4"})
    assert bad_hosts.given(everything, 1, ["n3", "n4"]), "it is certain"
    kept = cluster.submit(*ALL_FIVE)
    assert not bad_hosts.given(kept, 1, ["n3", "n4"]), "its user was told: asked for all the same"


def test_the_later_jobs_of_an_array_leave_out_a_host_that_turned_bad_and_so_says_the_next_attempt(
    cluster: Cluster, capsys: Capsys
) -> None:
    cluster.program("scontrol", f'echo "$@" >> "{cluster.home}/said"; exit "$(cat "{cluster.home}/code")"')
    said, code = cluster.home / "said", cluster.home / "code"
    assert main(["nodes", "add", "n5", "--site", str(cluster.home / "site.yaml")]) == 0
    run = cluster.submit(*CHAIN)
    bad_hosts.leave_out(run, 1, ["1"], (1, 8))
    assert not said.exists(), "nothing has changed since the submission"
    noted.found_bad(run, 1, {"n3": "gpus: 3, wanted 4"})
    cluster.ends(run, cause=Cause.BAD_HOST)
    code.write_text("1")
    with pytest.raises(SiteError, match="leaving hosts out of job 1"):
        bad_hosts.leave_out(run, 1, ["1"], (1, 8))
    code.write_text("0")
    for _ in range(2):
        bad_hosts.leave_out(run, 1, ["1"], (1, 8))
    assert said.read_text().splitlines() == ["update JobId=1_[1-8] ExcNodeList=n3,n5"] * 2, "not once it was accepted"
    here = keep_going.Here("1", "1_1", first=1, hosts=2)
    assert isinstance(keep_going.next_step(run, here, begin=True), Resume)
    second = ledger.last(ledger.events(run.ledger), Submitting, 2)
    assert second and second.left_out == {"n3": "found bad", "n5": "added by its user"}
    bad_hosts.leave_out(run, 1, ["1"], (2, 8))
    assert len(said.read_text().splitlines()) == 2, "the second attempt knows it as well"


def test_a_host_that_a_check_finds_bad_is_left_out_at_once(cluster: Cluster, capsys: Capsys) -> None:
    run = cluster.submit()
    noted.found_bad(run, 1, {"n3": "gpus: 3, wanted 4", "n4": "link: 1.0 GB/s"})
    assert [(host["host"], host["evidence"], host["count"], host["bad"]) for host in listed(capsys)] == [
        ("n3", "gpus: 3, wanted 4", 1, True), ("n4", "link: 1.0 GB/s", 1, True)
    ]  # fmt: skip
    cluster.ends(run)  # the same attempt, whose end names the host as well
    assert listed(capsys)[0]["count"] == 1 and {*excluded(cluster.submit()).split(",")} == {"n3", "n4"}
    assert "n4 (found bad)" in capsys.readouterr().err


def test_a_request_can_always_be_satisfied_and_says_which_bad_hosts_it_asks_for(
    cluster: Cluster, capsys: Capsys
) -> None:
    assert main(["nodes", "add", "n[1-4]", "n9.gone", "--site", str(cluster.home / "site.yaml"), "--for", "2d"]) == 0
    run = cluster.submit()
    kept = (
        "torusrun: bad, but still requested: n4 (added by its user): the run takes 2 nodes, and the scheduler has 5\n"
    )
    assert capsys.readouterr().err.endswith(kept)
    assert excluded(run) == "n1,n2,n3", "Slurm refuses a request that names a host which it does not have"
    assert excluded(cluster.submit("--set", "queue=big")) == "n1,n2,n3,n4"
    cluster.program("sinfo", "exit 1")
    assert excluded(cluster.submit()) == "n1,n2,n3,n4,n9.gone", "without an answer all are left out"
    assert {round(float(str(host["until_s"])) - float(str(host["last_s"]))) for host in listed(capsys)} == {2 * 86400}


def test_a_site_says_for_how_long_a_host_is_bad(cluster: Cluster, capsys: Capsys) -> None:
    site = cluster.home / "site.yaml"
    site.write_text(site.read_text() + "forget_bad_nodes: 10m\n")
    for _ in range(2):
        cluster.ends(cluster.submit())
    (host,) = listed(capsys)
    assert host["bad"] and round(float(str(host["until_s"])) - float(str(host["last_s"]))) == 600
    site.write_text(site.read_text().replace("10m", "400d"))
    assert "forget_bad_nodes" in refuses(capsys, "submit", str(cluster.home / "run.yaml"))


def test_a_scheduler_that_cannot_leave_out_hosts_is_said_to_ask_for_them(cluster: Cluster, capsys: Capsys) -> None:
    site = cluster.home / "site.yaml"
    site.write_text(site.read_text().replace("slurm", "pbs").replace("srun", "mpirun"))
    cluster.program("qsub", "echo 7.server")
    assert main(["nodes", "add", "n3", "--site", str(site), "--reason", "slow links"]) == 0
    capsys.readouterr()
    script = cluster.submit().attempt(1).script.read_text()
    assert "n3" not in script
    assert "bad, but still requested: n3 (slow links): PBS has no request" in capsys.readouterr().err


def test_this_machine_is_never_blamed(home: Path, capsys: Capsys) -> None:
    from tests.unit.run_folders import make, write_specs

    run = make(write_specs(home), End(State.FAILED, "x"))
    run.attempt(1).end.unlink()
    run.ledger.write_text("")
    recorded(run, run.attempt(1), lambda: End(State.NODE_FAIL, "x", cause=Cause.HOST_LOST, hosts=("here",)))
    assert listed(capsys) == []


def test_all_are_forgiven_or_those_of_a_site_which_may_be_gone(cluster: Cluster, capsys: Capsys) -> None:
    other = cluster.home / "other.yaml"
    other.write_text((cluster.home / "site.yaml").read_text())
    for site in (other, cluster.home / "site.yaml"):
        assert main(["nodes", "add", "n1", "n2", "--site", str(site)]) == 0
    assert [host["host"] for host in listed(capsys, "--site", str(other))] == ["n1", "n2"]
    other.unlink()
    assert "forgiven: n1 (other), n2 (other)" in prints(capsys, "nodes", "forgive", "--all", "--site", "other")
    assert {host["site"] for host in listed(capsys)} == {"site"}
    assert main(["nodes", "forgive", "--all"]) == 0
    assert listed(capsys) == [] and not memory.bad("site")


FOUR = ("node1", "node2", "node3", "node4")


@pytest.mark.parametrize(
    ("scheduler", "ask", "queue", "hosts"),
    [
        (Slurm(), SLURM, None, FOUR),
        (Slurm(), SLURM, "short,main", FOUR),
        (Slurm(), SLURM, "nosuch", ()),
        (GridEngine("me"), GRIDENGINE, None, FOUR),
        (GridEngine("me"), GRIDENGINE, "all.q", FOUR),
        (GridEngine("me"), GRIDENGINE, "nosuch", ()),  # it was not recorded: qselect ends with 1
        (PBS(), GRIDENGINE, None, ()),
    ],
)
def test_the_hosts_of_a_queue_are_read_from_recorded_answers(
    scheduler: Scheduler, ask: Ask, queue: str | None, hosts: tuple[str, ...], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(client, "asking", lambda timeout_s: ask)
    assert Client(scheduler, 5.0).hosts(queue) == hosts
