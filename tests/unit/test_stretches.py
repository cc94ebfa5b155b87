"""Phases that want different numbers of nodes: which attempt trains what, and who submits the next one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import prints, refuses
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.api import open_run
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.keys.run import RunSpec, Train
from torusrun.orchestrator.keys.site import Node, Site
from torusrun.orchestrator.run.attempts.successor import hand_over, submit_next
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import CancelRequested, Changes, Ended, Started, Submitted
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import derive, first
from torusrun.orchestrator.run.plan.phase_groups import for_first_attempt, in_words, stretch_at, stretches
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.state.decide import Resume
from torusrun.training.checkpoint.manifest import MANIFEST, compose, name_of
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import PhaseKeys

NODES = st.lists(st.none() | st.integers(1, 3), min_size=1, max_size=6)


def run_of(nodes: list[int | None], of_run: int = 2) -> RunSpec:
    """A run with a phase of two epochs for each of these."""
    phases = tuple(PhaseKeys(until=2.0 * (number + 1), nodes=wanted) for number, wanted in enumerate(nodes))
    train = Train(batch=48, epochs=2 * len(nodes), phases=phases)
    return RunSpec("x", "site.yaml", nodes=of_run, train=train)


def plan_of(run: RunSpec) -> Plan:
    site = Site(scheduler="slurm", launcher="srun", node=Node(ranks=2), stop_before_s=60.0)
    return Plan("x-1", for_first_attempt(run), site, Path("/runs/x-1"), "/usr/bin/python3")


def test_phases_of_one_number_of_nodes_are_one_stretch() -> None:
    found = stretches(run_of([None, 2, 4, None, 1]))
    assert [(stretch.phases, stretch.nodes, stretch.begins, stretch.ends) for stretch in found] == [
        ("phases 1 to 2", 2, 0.0, 4.0),
        ("phases 3 to 4", 4, 4.0, 8.0),
        ("phase 5", 1, 8.0, 10.0),
    ]
    assert in_words(found) == "2 nodes until epoch 4, then 4 nodes until epoch 8, then 1 node until epoch 10"
    assert stretches(run_of([None, None])) == () and stretch_at(run_of([None]), 0.0) is None


@given(NODES, st.integers(1, 3), st.floats(0, 14))
def test_an_attempt_has_the_nodes_of_the_phase_that_it_begins_in(
    nodes: list[int | None], of_run: int, epochs: float
) -> None:
    wanted = of_run
    in_phase = [wanted := one or wanted for one in nodes]
    plan = plan_of(run_of(nodes, of_run))
    planned = derive(plan, [], 2, Changes(), epochs).plan
    assert first(plan).plan.run.nodes == in_phase[0]
    here = min(int(epochs // 2), len(nodes) - 1)
    assert planned.run.nodes == (in_phase[here] if any(nodes) else of_run)
    if planned.stretch is None:
        assert not any(nodes)
        return
    begins, ends = (int(epoch // 2) for epoch in planned.stretch)
    assert set(in_phase[begins:ends]) == {planned.run.nodes} and begins <= here < ends
    assert ends == len(nodes) or in_phase[ends] != planned.run.nodes


def test_the_users_own_number_of_nodes_holds_for_all_that_is_left() -> None:
    planned = derive(plan_of(run_of([1, 2])), [], 2, Changes(nodes=3), 0.0).plan
    assert (planned.run.nodes, planned.stretch, stretches(planned.run)) == (3, None, ())


def test_the_stretch_of_an_attempt_is_kept(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "x-1")
    run.attempt(1).folder.mkdir(parents=True)
    planned = first(replace(plan_of(run_of([1, 2])), folder=run.folder))
    plan_files.write_attempt(run.attempt(1), planned)
    assert plan_files.read_attempt(run, 1) == planned and planned.plan.stretch == (0.0, 2.0)


# A cluster whose commands do as they are told.

PHASES = "{epochs: 4, batch: 48, phases: [{until: 2, nodes: 1}, {until: 4, nodes: 2}]}"


class Cluster(SlurmPrograms):
    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(home, monkeypatch, f"nodes: 1\ntrain: {PHASES}", "{ranks: 2}")

    def run(self, epochs: float = 2.0) -> RunFolder:
        """A run whose first attempt began, and wrote a checkpoint after so many epochs."""
        assert main(["submit", str(self.home / "run.yaml")]) == 0
        (folder,) = (self.home / "runs").iterdir()
        run = RunFolder(folder)
        ledger.append(run.ledger, Started(1, "1", ("n1",), (2, 1)))
        checkpoint = run.checkpoints / name_of(60)
        checkpoint.mkdir(parents=True)
        (checkpoint / "state.pt").write_bytes(b"weights")
        files = {"state.pt": b"weights"}
        (checkpoint / MANIFEST).write_text(json.dumps(compose(Progress(60, 2880), epochs, 1, files)))
        return run

    def ends(self, run: RunFolder) -> End:
        """What the supervisor of attempt 1 does once its training wants other nodes."""
        end = hand_over(run, 1, plan_files.read_attempt(run, 1).plan)
        end.write(run.attempt(1).end)
        ledger.append(run.ledger, Ended.by(1, end))
        return end


@pytest.fixture
def cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(home, monkeypatch)


def test_the_job_submits_the_next_attempt_with_the_nodes_of_the_next_phase(cluster: Cluster) -> None:
    run = cluster.run()
    assert "--nodes=1" in run.attempt(1).script.read_text()
    end = cluster.ends(run)
    assert (end.reason, end.followed_by) == ("phase 2 needs 2 nodes: attempt 2 continues", 2)
    assert "--nodes=2" in run.attempt(2).script.read_text()
    planned = plan_files.read_attempt(run, 2)
    assert (planned.plan.stretch, planned.changes, planned.plan.has_grid) == ((2.0, 4.0), Changes(), False)
    cluster.program("squeue", "echo '2|PENDING|Priority|'")
    view = open_run(run.run_id).status()
    assert (view.state, view.attempt, view.job) == (State.PENDING, 2, "2"), "the run is what its newest attempt is"


def test_a_compute_node_that_cannot_submit_says_what_to_do(cluster: Cluster) -> None:
    run = cluster.run()
    cluster.program("sbatch", "echo 'sbatch: error: not allowed on this node' >&2; exit 1")
    end = cluster.ends(run)
    assert "phase 2 needs 2 nodes" in end.reason and "not allowed on this node" in end.reason
    view = open_run(run.run_id).status()
    assert (view.state, view.attempt) == (State.CANCELLED, 1)
    assert f"`torusrun resume {run.run_id}` continues with 2 nodes" in view.reason
    cluster.program("sbatch", "echo 7")
    assert main(["resume", "last"]) == 0
    assert "--nodes=2" in run.attempt(2).script.read_text()


def test_a_submission_without_an_answer_is_looked_for_by_its_name(cluster: Cluster) -> None:
    run = cluster.run()
    cluster.program("sbatch", "echo perhaps")
    end = cluster.ends(run)
    assert end.followed_by == 2 and "whether attempt 2 was submitted is not known" in end.reason
    view = open_run(run.run_id).status()
    assert (view.state, view.attempt) == (State.UNKNOWN, 2)


def test_a_cancelled_attempt_is_cancelled_even_if_no_plan_can_follow_it(cluster: Cluster) -> None:
    run = cluster.run()
    plan = plan_files.read_attempt(run, 1).plan
    for path in (run.plan, run.attempt(1).plan):
        path.write_text("{")
    ledger.append(run.ledger, CancelRequested(1))
    assert hand_over(run, 1, plan).reason == "cancelled by its user"


def test_a_request_to_cancel_that_comes_during_the_submission_holds_for_the_next_attempt(cluster: Cluster) -> None:
    run = cluster.run()
    line = '{"t": 1.0, "event": "cancel_requested", "attempt": 1}'
    cluster.program("sbatch", f"echo '{line}' >> {run.ledger}; echo 2")
    cluster.program("scancel", f'echo "$@" >> {cluster.home}/cancelled')
    assert cluster.ends(run).followed_by == 2
    assert ledger.last(ledger.events(run.ledger), CancelRequested, 2)
    assert (cluster.home / "cancelled").read_text() == "2\n"


def test_cancel_finds_an_attempt_that_was_submitted_at_the_same_time(cluster: Cluster) -> None:
    run = cluster.run()
    cluster.program("squeue", "echo '1|RUNNING||n1'; echo '2|PENDING|Priority|'")
    # The job of attempt 1 submits the next one when scancel ends it, which is too late for it to see the request.
    submitted = json.dumps({"t": 1.0, "event": "submitted", "attempt": 2, "job": "2", "scheduler": "slurm"})
    note = f'echo "$@" >> {cluster.home}/cancelled'
    cluster.program("scancel", f"{note}; [ $1 = 2 ] || echo '{submitted}' >> {run.ledger}")
    run.attempt(1).end.unlink(missing_ok=True)
    events = [event for event in ledger.events(run.ledger) if not isinstance(event, Started)]
    run.ledger.write_text("".join(json.dumps(ledger.as_json(event)) + "\n" for event in events))
    assert main(["cancel", "last"]) == 0
    assert (cluster.home / "cancelled").read_text().split() == ["1", "2"]


def test_of_two_that_continue_one_does(cluster: Cluster) -> None:
    run = cluster.run()
    ledger.append(run.ledger, Submitted(2, "9", "slurm"))
    plan = plan_files.read_attempt(run, 1).plan
    assert submit_next(run, 1, plan) == Resume(2) and not run.attempt(2).folder.exists(), (
        "its user's own attempt goes on"
    )


def test_an_attempt_that_would_do_the_same_again_is_not_submitted(cluster: Cluster) -> None:
    end = cluster.ends(cluster.run(epochs=1.9))
    assert end.followed_by is None and "no other number of nodes is wanted" in end.reason


def test_an_end_that_is_read_before_the_next_attempt_is_seen_is_not_the_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler is asked about job 1, which submits the next attempt and ends meanwhile."""
    run = cluster.run()
    cluster.program("squeue", f"touch {cluster.home}/asked; echo '2|PENDING|Priority|'")
    from torusrun.orchestrator.schedulers.client import Client

    survey = Client.survey

    def ends_meanwhile(client: Client, jobs: list[str]) -> object:
        found = survey(client, jobs)
        if jobs == ["1"]:
            cluster.ends(run)
        return found

    monkeypatch.setattr(Client, "survey", ends_meanwhile)
    view = open_run(run.run_id).status()
    assert (view.state, view.attempt) == (State.PENDING, 2)
    assert not ledger.last(ledger.events(run.ledger), Ended, 2)


def test_a_run_cannot_wait_for_a_job_that_is_not_the_last(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    run = cluster.run()
    cluster.program("squeue", "echo '1|RUNNING||n1'; echo '2|PENDING|Priority|'")
    assert main(["submit", str(cluster.home / "run.yaml"), "--after", run.run_id]) == 2
    assert "wait for it once its last job is submitted, from epoch 2 on" in capsys.readouterr().err
    cluster.ends(run)
    assert main(["submit", str(cluster.home / "run.yaml"), "--after", run.run_id]) == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["grid=2x1"], "write 'grid: auto', which chooses one for each number of nodes"),
        (["train.batch=6"], "6 does not divide by 4 ranks"),
        (["site=local.yaml"], "'train.phases[1].nodes' must be 1 on a local site"),
    ],
)
def test_what_does_not_fit_a_stretch_is_reported_with_its_place(
    cluster: Cluster, settings: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster.home / "local.yaml").write_text("scheduler: local\nlauncher: spawn\nnode: {ranks: 2}\nruns: runs\n")
    words = [word for setting in settings for word in ("--set", setting)]
    assert says in refuses(capsys, "plan", str(cluster.home / "run.yaml"), *words)


def test_plan_shows_the_stretches(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    said = prints(capsys, "plan", str(cluster.home / "run.yaml"))
    assert "attempts    1 node until epoch 2, then 2 nodes until epoch 4" in said
    assert main(["submit", str(cluster.home / "run.yaml"), "--dry-run"]) == 0
    assert "1 node until epoch 2, then 2 nodes until epoch 4" in capsys.readouterr().out


def test_predict_shows_the_time_of_every_stretch(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    spec = cluster.home / "run.yaml"
    spec.write_text(spec.read_text().replace("nodes: 2}", "nodes: 2, batch: 96}"))
    found = json.loads(prints(capsys, "predict", str(spec), "--images-per-s", "100", "--json"))
    one, two = found["parts"]
    assert (one["nodes"], one["begins"], one["ends"], two["nodes"], two["ends"]) == (1, 0.0, 2.0, 2, 4.0)
    assert 0 < two["total_s"] < one["total_s"] < found["total_s"], "twice the ranks, half the epochs"
    assert "epochs 2 to 4 on 2 nodes" in prints(capsys, "predict", str(spec), "--images-per-s", "100")
