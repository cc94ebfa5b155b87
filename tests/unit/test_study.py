"""Studies: what is read and refused before a submission, and what the jobs of the members have to do with Optuna."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_sweeps import Cluster
from tests.unit.verbs import Capsys, Patch, prints
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.api import Sweep, sweep
from torusrun.orchestrator.keys.combinations import checked_members, in_words, study
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.study import Searched
from torusrun.orchestrator.run.attempts.reproduce import plan_again
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.run.plan.plan_files import read_attempt, read_first, write_first
from torusrun.orchestrator.sweeps import study_in_job as job
from torusrun.orchestrator.sweeps.plans import plan_sweep
from torusrun.orchestrator.sweeps.study_in_job import with_values

OPTUNA = "study: optuna, trials: 4, metric: score, goal: max"
SWEEP = f"sweep: {{{OPTUNA}, env.X: {{from: 0.0, to: 1.0}}, env.KIND: [a, b]}}\n"
SAYS = '#!/bin/sh\necho "{}"\n'


def keys(text: str) -> Any:
    return read(RunSpec, f"name: x\nsite: local\nsweep: {{{text}}}\n", "run.yaml")[0].sweep


@pytest.mark.parametrize(
    ("text", "searched", "checked"),
    [
        ("[a, b]", Searched("env.X", ("a", "b")), ["a", "b"]),
        ("{from: 1e-3, to: 1.0, log: true}", Searched("env.X", (), 0.001, 1.0, True), ["0.001", "1.0"]),
        ("{from: 1, to: 3}", Searched("env.X", (), 1.0, 3.0, False, None, True), ["1", "2", "3"]),
        ("{from: 1, to: 1000, log: true}", Searched("env.X", (), 1, 1000, True, None, True), ["1", "1000"]),
        ("{from: 32, to: 100, step: 32}", Searched("env.X", (), 32, 96, False, 32, True), ["32", "64", "96"]),
        ("{from: 0.0, to: 1, step: 0.5}", Searched("env.X", (), 0, 1, False, 0.5), ["0.0", "0.5", "1.0"]),
    ],
)  # fmt: skip
def test_what_a_study_chooses_from(text: str, searched: Searched, checked: list[str]) -> None:
    given = keys(f"{OPTUNA}, env.X: {text}")
    found = study(given)
    assert found.searched == (searched,) and (found.metric, found.larger) == ("score", True)
    assert [in_words(member) for member in checked_members(given, found)] == [f"env.X={value}" for value in checked]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("study: optuna, trials: 4, env.X: [1]", "a study needs 'metric': what it compares"),
        ("study: optuna, metric: loss, goal: min, env.X: [1]", "a study needs 'trials': how many members it has"),
        (OPTUNA, "nothing to choose"),
        (f"{OPTUNA}, nodes: [1, 2]", "'nodes' must be known before the submission"),
        (f"{OPTUNA}, train.recipe: [a]", "'train.recipe' must be known before the submission"),
        (f"{OPTUNA}, env.X: {{from: 1, to: 9, log: 4}}", "must have a list of values, {from: A, to: B}"),
        (f"{OPTUNA}, env.X: {{from: 0, to: 9, log: true}}", "is not possible"),
        (f"{OPTUNA}, env.X: {{from: 1, to: 9, step: 10}}", "is not possible"),
        (f"{OPTUNA}, env.X: {{from: 1, to: x}}", "'env.X': x is not a number"),
        (f"{OPTUNA}, env.X: [1, 1]", "'env.X' has a value twice"),
        (f"{OPTUNA}, env.X: [[1]]", "a study chooses from words and numbers, not a list"),
        (f"{OPTUNA}, env.X: 3", "must have a list of values"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_study_is_named(text: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        study(keys(text))
    assert says in str(error.value)


class Studied(Cluster):
    """A Slurm whose jobs have a Python that says what Optuna it has."""

    def __init__(self, home: Path, monkeypatch: Patch) -> None:
        super().__init__(home, monkeypatch)
        self.site(f"python: {home}/python")
        self.has("4.5.0")
        with (home / "run.yaml").open("a") as file:
            file.write(SWEEP)

    def has(self, version: str) -> None:
        (self.home / "python").write_text(SAYS.format(version))
        (self.home / "python").chmod(0o755)

    def members(self) -> Sweep:
        return sweep(self.home / "run.yaml")


@pytest.fixture
def cluster(home: Path, monkeypatch: Patch) -> Studied:
    return Studied(home, monkeypatch)


def test_members_of_a_study_are_submitted_without_values(cluster: Studied, capsys: Capsys) -> None:
    made = cluster.members()
    assert "#SBATCH --array=0-3%1\n" in cluster.script(1), "an eighth of four members, and not all at once"
    assert made.settings() == [{}] * 4
    assert read_attempt(made.folders[2], 1).plan.chosen_values == {}
    assert [row["settings"] for row in json.loads(prints(capsys, "status", made.id, "--json"))["members"]] == [{}] * 4
    assert {path.stat().st_mode & 0o777 for path in (made.folder.study, made.folder.record)} == {0o600}


def test_a_plan_shows_what_a_study_chooses_from(cluster: Studied, capsys: Capsys) -> None:
    said = prints(capsys, "submit", str(cluster.home / "run.yaml"), "--dry-run")
    assert "env.X     0 to 1" in said and "env.KIND  a, b" in said
    assert "4 members, at most 4 node-hours" in said and "the largest score, by Optuna in the jobs" in said
    found = json.loads(prints(capsys, "plan", str(cluster.home / "run.yaml"), "--json"))
    assert len(found["members"]) == 4 and found["study"]["metric"] == "score"


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (f"train: {{}}\nsweep: {{{OPTUNA}, train.optimizer.lr: [0.1]}}", "a training reports no 'score'"),
        ("train: {}\nsweep: {trials: 4, train.optimizer.lr: [0.1]}", "sweep.trials: it is for a study"),
        (
            "train: {}\nsweep: {study: optuna, trials: 4, metric: accuracy, goal: max, train.batch: [64, 63]}",
            "a member with train.batch=63:\n",
        ),
        (
            "train: {}\nsweep: {study: optuna, trials: 4, metric: accuracy, goal: max, train.optimizer.lr: [0.1, x]}",
            "'train.optimizer.lr' must be a number, not 'x'",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_a_submission(run: str, says: str, cluster: Studied) -> None:
    (cluster.home / "run.yaml").write_text(f"name: x\nsite: ./site.yaml\nranks_per_node: 2\n{run}\n")
    (cluster.home / "site.yaml").write_text((cluster.home / "site.yaml").read_text().replace("ranks: 1", "ranks: 2"))
    with pytest.raises(UserError) as error:
        plan_sweep(cluster.home / "run.yaml")
    assert says in str(error.value)


def test_a_python_without_optuna_is_refused_at_submit(cluster: Studied) -> None:
    for version, has in (("None", "none"), ("4.2.1", r"4\.2\.1")):
        cluster.has(version)
        with pytest.raises(UserError, match=f"needs Optuna 4.3 or newer .*, and {cluster.home}/python has {has}"):
            cluster.members()
    assert not (cluster.home / "runs").exists()
    (cluster.home / "python").unlink()  # only the nodes have it: the job finds out
    assert len(cluster.members().folders) == 4


def begin(run: RunFolder, number: int = 1) -> dict[str, str]:
    return dict(job.begin(run, read_attempt(run, number)).plan.chosen_values or {})


def trials(made: Sweep) -> list[tuple[str, str, float | None]]:
    """(the number of the member, the state, the value) of each trial."""
    optuna = pytest.importorskip("optuna")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(made.folder.journal)))
    found = optuna.load_study(study_name=made.id, storage=storage).get_trials()
    return [(trial.user_attrs["run"].rpartition(".")[2], trial.state.name, trial.value) for trial in found]


def reports(run: RunFolder, **numbers: float) -> None:
    row = {"event": "step", "attempt": 1, "step": 1, "t": 1.0, **numbers}
    run.metrics.write_text(json.dumps(row) + "\n")


def test_a_job_chooses_writes_and_keeps_the_values_of_its_member(cluster: Studied) -> None:
    pytest.importorskip("optuna")
    made = cluster.members()
    values = [begin(run) for run in made.folders]
    assert made.settings() == values and len({value["env.X"] for value in values}) == 4
    for run, own in zip(made.folders, values, strict=True):
        assert read_attempt(run, 1).plan.run.env == {"X": own["env.X"], "KIND": own["env.KIND"]}
        assert read_first(run, 1).run.env["X"] == own["env.X"], "later attempts are derived from this"
        assert begin(run) == own, "a job that is begun again keeps them"
    assert trials(made) == [(str(number), "RUNNING", None) for number in range(4)]
    assert made.folder.journal.stat().st_mode & 0o777 == 0o600


def test_results_are_reported_and_a_resumed_member_continues_with_its_values(cluster: Studied, capsys: Capsys) -> None:
    pytest.importorskip("optuna")
    made = cluster.members()
    well, badly, silent, again = made.folders
    values = [begin(run) for run in made.folders]
    reports(well, score=0.5)
    job.ended(well, 1, End(State.COMPLETED, "done"), wait=False)
    job.ended(badly, 1, End(State.FAILED, "exit 3"), wait=False)
    job.ended(silent, 1, End(State.COMPLETED, "done"), wait=False)
    said = capsys.readouterr().err
    assert f"{silent.run_id} has reported no 'score' (nothing): its study counts it as failed" in said
    for end in (End(State.FAILED, "exit 3", kept_going=True), End(State.TIMEOUT, "time")):
        job.ended(again, 1, end, wait=False)
    assert [state for _, state, _ in trials(made)] == ["COMPLETE", "FAIL", "FAIL", "RUNNING"]
    assert begin(badly) == values[1]
    reports(badly, score=0.25)
    job.ended(badly, 1, End(State.COMPLETED, "done"), wait=False)
    job.ended(badly, 1, End(State.COMPLETED, "done"), wait=False)  # its job is begun again
    job.over(again, 1, read_attempt(again, 1).plan)
    assert trials(made)[1:] == [("1", "FAIL", None), ("2", "FAIL", None), ("3", "FAIL", None), ("1", "COMPLETE", 0.25)]


def test_an_older_attempt_does_not_end_the_trial_of_a_newer_one(cluster: Studied) -> None:
    pytest.importorskip("optuna")
    made = cluster.members()
    run = made.folders[0]
    begin(run)
    claim.take(run, 2)
    job.ended(run, 1, End(State.CANCELLED, "attempt 2 of this run has begun"), wait=False)
    assert trials(made) == [("0", "RUNNING", None)]
    reports(run, score=0.5)
    job.ended(run, 2, End(State.COMPLETED, "done"), wait=False)
    assert trials(made) == [("0", "COMPLETE", 0.5)]


def test_a_member_is_reproduced_as_a_run_with_the_values_of_its_study(cluster: Studied) -> None:
    run = cluster.members().folders[0]
    with pytest.raises(UserError, match="has chosen no values for it yet"):
        plan_again(run)
    write_first(run, with_values(read_first(run, 1), {"env.X": "0.5", "env.KIND": "b"}, "the study"))
    again = plan_again(run)
    assert again.run.env == {"X": "0.5", "KIND": "b"} and again.chosen_values is None


def _begin(folder: str) -> None:
    begin(RunFolder(Path(folder)))


def test_jobs_that_begin_at_the_same_time_each_have_a_trial(cluster: Studied) -> None:
    pytest.importorskip("optuna")
    made = cluster.members()
    jobs = [multiprocessing.Process(target=_begin, args=(str(run.folder),)) for run in made.folders]
    for one in jobs:
        one.start()
    for one in jobs:
        one.join(60)
    assert sorted(member for member, _, _ in trials(made)) == ["0", "1", "2", "3"]


def test_a_line_that_a_kill_cut_short_is_removed(cluster: Studied) -> None:
    pytest.importorskip("optuna")
    made = cluster.members()
    begin(made.folders[0])
    with made.folder.journal.open("ab") as file:
        file.write(b'{"op_code": 4, "worker')
    begin(made.folders[1])
    assert [member for member, _, _ in trials(made)] == ["0", "1"]
    made.folder.journal.write_text("not JSON\n{}\n")
    with pytest.raises(SiteError, match=r"study\.journal: Optuna cannot use it: "):
        begin(made.folders[2])


def test_values_that_do_not_fit_end_the_member_with_the_reason(cluster: Studied) -> None:
    pytest.importorskip("optuna")
    (cluster.home / "site.yaml").write_text((cluster.home / "site.yaml").read_text().replace("ranks: 1", "ranks: 8"))
    (cluster.home / "run.yaml").write_text(
        "name: x\nsite: ./site.yaml\ntrain: {}\n"
        "sweep: {study: optuna, trials: 1, metric: accuracy, goal: max, train.batch: {from: 800, to: 824}}\n"
    )
    (run,) = cluster.members().folders
    journal = SweepFolder(run.folder.parent)
    for seed in range(8):  # one of eight numbers fits
        if int(chosen := _chosen(run, journal, seed)) % 8:
            break
    assert read_attempt(run, 1).plan.chosen_values == {"train.batch": chosen}
    with pytest.raises(UserError, match=f"the values that the study chose do not fit: train.batch={chosen}\n.*batch"):
        begin(run)


def _chosen(run: RunFolder, sweep: SweepFolder, seed: int) -> str:
    """The batch of a new study with this seed."""
    kept = json.loads(sweep.study.read_text())
    sweep.study.write_text(json.dumps({**kept, "seed": seed}))
    sweep.journal.unlink(missing_ok=True)
    with contextlib.suppress(UserError):
        begin(run)
    return str(sweep.settings()[0]["train.batch"])


def test_a_job_whose_python_has_no_optuna_says_so(cluster: Studied, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    run = cluster.members().folders[0]
    with pytest.raises(UserError, match=f"needs Optuna 4.3 or newer .* and {sys.executable} has none"):
        begin(run)


def test_a_run_without_a_study_has_nothing_to_do_with_optuna(cluster: Studied, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    (cluster.home / "run.yaml").write_text("name: x\nsite: ./site.yaml\ncommand: [sh, -c, 'exit 0']\ncode: none\n")
    (run, _) = cluster.submit("env.X=1,2").folders
    planned = read_attempt(run, 1)
    assert job.begin(run, planned) is planned
    job.ended(run, 1, End(State.COMPLETED, "done"), wait=False)
