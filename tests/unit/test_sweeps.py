"""Sweeps on a Slurm whose commands remember what they were given: arrays, refusals, lost answers, killed clients."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.api import Sweep, open_sweep, plan_sweep, submit, sweep
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.job.loop import _of_task
from torusrun.orchestrator.run.folder import index, ledger, sweep_folder
from torusrun.orchestrator.run.folder.events import KeptGoing, Submitted
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import lookup, outcome
from torusrun.orchestrator.run.state.awaited import to_wait_for
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.sweeps.batches import Batch
from torusrun.orchestrator.sweeps.submit import first, proposed

LATER_S = 120.0  # after a submission, when a scheduler would show the job
# Each job has a line in the file `jobs`: its id, its name and the number of its tasks.
TAKES = r"""script=$(eval echo \$$#)
name=$(sed -n 's/^#SBATCH --job-name=//p' "$script")
tasks=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$script")
echo "$(( $(wc -l < "$JOBS") + 1 )) $name ${tasks:-none}" >> "$JOBS"
cp "$script" "$JOBS.$(wc -l < "$JOBS")"
wc -l < "$JOBS"
"""
SHOWS = r"""case "$*" in
*--name=*) for word; do case "$word" in --name=*) name=${word#--name=};; esac; done
  while read -r id called tasks; do if [ "$called" = "$name" ]; then echo "$id"; fi; done < "$JOBS";;
*) while read -r id called tasks; do
  if [ "$tasks" = none ]; then echo "$id|PENDING|Resources|"; continue; fi
  n=0; while [ $n -le "$tasks" ]; do echo "${id}_$n|PENDING|Resources|"; n=$((n + 1)); done; done < "$JOBS";;
esac
"""
COMMAND = "command: [sh, -c, 'exit 0']\ncode: none\n"


class Cluster(SlurmPrograms):
    """A Slurm that keeps its jobs in a file."""

    def __init__(self, home: Path, monkeypatch: Patch) -> None:
        super().__init__(home, monkeypatch, COMMAND)
        self.file = home / "jobs"
        self.file.touch()
        self.program("sbatch", TAKES.replace("$JOBS", str(self.file)))
        self.program("squeue", SHOWS.replace("$JOBS", str(self.file)))

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that were submitted, in order."""
        return [line.split()[1] for line in self.file.read_text().splitlines()]

    def script(self, job: int) -> str:
        return Path(f"{self.file}.{job}").read_text()

    def refuses_from(self, job: int) -> None:
        """Refuse this job and those after it."""
        refuse = f'test "$(wc -l < {self.file})" -lt {job - 1} || {{ echo "sbatch: error: no" >&2; exit 1; }}\n'
        self.program("sbatch", refuse + TAKES.replace("$JOBS", str(self.file)))

    def site(self, *lines: str) -> None:
        with (self.home / "site.yaml").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def submit(self, *values: str, at_once: int | None = 2) -> Sweep:
        return sweep(self.home / "run.yaml", values=values or ["env.X=1,2,3,4,5,6"], at_once=at_once)


@pytest.fixture
def cluster(home: Path, monkeypatch: Patch) -> Cluster:
    return Cluster(home, monkeypatch)


def jobs_of(submitted: Sweep) -> list[str | None]:
    found = [ledger.last(ledger.events(run.ledger), Submitted, 1) for run in submitted.folders]
    return [event.job if event else None for event in found]


def end(run: RunFolder, state: State, number: int = 1, *, again: bool = True) -> None:
    End(state, "so it ended", again=again).write(run.attempt(number).end)


def test_members_are_the_tasks_of_one_array(cluster: Cluster) -> None:
    submitted = cluster.submit()
    assert cluster.jobs == [f"{submitted.id}-1"]
    assert "#SBATCH --array=0-5%2\n" in cluster.script(1)
    assert jobs_of(submitted) == [f"1_{task}" for task in range(6)]
    assert [view.state for view in submitted.status()] == [State.PENDING] * 6
    with pytest.raises(TimeoutError, match=f"6 runs of {submitted.id} not over after 0 s"):
        submitted.wait(0.0)
    assert submitted.settings()[2] == {"env.X": "3"}
    attempts = [run.attempt(1) for run in submitted.folders]
    assert [_of_task(submitted.folder.array(1), task) for task in range(6)] == attempts
    assert "#SBATCH" not in attempts[0].script.read_text(), "a task's own script has no request"
    plan = json.loads(submitted.folders[2].plan.read_text())
    assert plan["spec"]["env"] == {"X": "3"} and plan["spec"]["sweep"] is None


def test_other_requests_and_too_many_members_are_other_arrays_which_follow_one_another(cluster: Cluster) -> None:
    cluster.site("largest_array: 2")
    submitted = cluster.submit("nodes=1,2", "env.X=1,2,3")
    assert jobs_of(submitted) == ["1_0", "1_1", "3", "2_0", "2_1", "4"], "PBS refuses an array of one job"
    assert ["--nodes=2" in cluster.script(job) for job in range(1, 5)] == [False, True, False, True]
    waits = [line for job in range(1, 5) for line in cluster.script(job).splitlines() if "--dependency" in line]
    assert waits == [f"#SBATCH --dependency=afterany:{job}" for job in (1, 2, 2)], "at_once holds for all arrays"


def test_members_that_keep_going_are_their_own_arrays_in_lanes(cluster: Cluster) -> None:
    (cluster.home / "run.yaml").write_text(
        f"name: x\nsite: ./site.yaml\nkeep_going: {{attempts: 3}}\n{COMMAND}checkpoints: {{folder: kept}}\n"
    )
    submitted = cluster.submit("env.X=1,2,3,4")
    assert jobs_of(submitted) == ["1", "2", "3", "4"]
    assert all("#SBATCH --array=0-2%1\n" in cluster.script(job) for job in range(1, 5))
    assert ["--dependency=afterany:1" in cluster.script(3), "--dependency=afterany:2" in cluster.script(4)] == [
        True
    ] * 2
    assert "--dependency" not in cluster.script(1) + cluster.script(2), "two may begin at once"


def test_chains_of_jobs_are_awaited_to_their_last_job(cluster: Cluster) -> None:
    cluster.site("attempts_by: dependency")
    with (cluster.home / "run.yaml").open("a") as file:
        file.write("keep_going: {attempts: 2}\ncheckpoints: {folder: kept}\n")
    submitted = cluster.submit("env.X=1,2", at_once=1)
    assert jobs_of(submitted) == ["1", "3"] and len(cluster.jobs) == 4
    assert "--dependency=afterany:2\n" in cluster.script(3), "the second member waits for both jobs of the first"


@pytest.mark.parametrize(
    ("scheduler", "lines"),
    [
        ("slurm", ["#SBATCH --array=0-5%2"]),
        ("pbs", ["#PBS -J 0-5%2"]),
        ("gridengine", ["#$ -t 1-6", "#$ -tc 2"]),
    ],
)
def test_the_request_of_each_scheduler(scheduler: str, lines: list[str], cluster: Cluster) -> None:
    cluster.site("ask: ['-l nodes={nodes}']", f"python: {sys.executable}")
    text = (cluster.home / "site.yaml").read_text().replace("slurm", scheduler).replace("srun", "mpirun")
    (cluster.home / "site.yaml").write_text(text)
    (batch,) = batches_of(cluster)
    assert {*lines} <= {*batch.text().splitlines()}
    assert f"torusrun.orchestrator.job.loop --task {batch.script_path().parent} {scheduler}" in batch.text()
    assert schedulers.get(scheduler).task_id({"pbs": "7[].s"}.get(scheduler, "7"), 0) in ("7_0", "7[0].s", "7.1")


def batches_of(cluster: Cluster) -> list[Batch]:
    return proposed(plan_sweep(cluster.home / "run.yaml", values=["env.X=1,2,3,4,5,6"], at_once=2))


def test_a_run_waits_for_the_array_of_a_member_where_no_job_can_wait_for_a_task(cluster: Cluster) -> None:
    jobs = {"slurm": "7_3", "pbs": "7[3].server", "gridengine": "7.3"}
    awaited = {name: schedulers.get(name).awaitable(job) for name, job in jobs.items()}
    assert awaited == {"slurm": "7_3", "pbs": "7[].server", "gridengine": "7"}
    member = cluster.submit().folders[3]
    assert [(one.job, one.several) for one in to_wait_for("slurm", [member.run_id], [])] == [("1_3", False)]


def test_every_member_is_checked_before_anything_is_written(cluster: Cluster) -> None:
    with pytest.raises(UserError) as error:
        cluster.submit("time=1h,2h,never", "stop.before=10s,3h")
    assert str(error.value).startswith("member 1 (time=1h, stop.before=3h):\n")
    assert "other members of 6" in str(error.value)
    assert not (cluster.home / "runs").exists() and not index.runs()
    with pytest.raises(UserError, match=r"member 2 \(time=never\):\n--sweep time=1h,2h,never: 'time': 'never' is not"):
        cluster.submit("time=1h,2h,never")


def test_a_refused_sweep_leaves_nothing(cluster: Cluster) -> None:
    cluster.refuses_from(1)
    with pytest.raises(SiteError, match="no"):
        cluster.submit()
    assert not index.runs() and not [*(cluster.home / "runs").iterdir()]


def test_members_of_a_refused_later_array_can_be_resumed_at_once(cluster: Cluster) -> None:
    cluster.site("largest_array: 4")
    cluster.refuses_from(2)
    with pytest.raises(SiteError, match="no"):
        cluster.submit()
    found = open_sweep("last")
    states = [view.state for view in found.status()]
    assert states == [State.PENDING] * 4 + [State.FAILED] * 2
    assert "it was not submitted: " in found.status()[5].reason
    cluster.refuses_from(9)
    assert [run.id for run in found.resume()] == [f"{found.id}.4", f"{found.id}.5"]
    assert cluster.jobs == [f"{found.id}-1", f"{found.id}-3"], "the number of the refused array is used"


def test_resume_submits_only_members_that_failed_as_one_array(cluster: Cluster) -> None:
    submitted = cluster.submit()
    for number, run in enumerate(submitted.folders):
        end(run, State.FAILED if number in (1, 4) else State.COMPLETED)
    assert [run.id for run in submitted.resume(time="2h")] == [f"{submitted.id}.1", f"{submitted.id}.4"]
    assert cluster.jobs == [f"{submitted.id}-1", f"{submitted.id}-2"]
    assert "#SBATCH --array=0-1\n" in cluster.script(2) and "--time=120" in cluster.script(2)
    assert [view.job for view in submitted.status()] == ["1_0", "2_0", "1_2", "1_3", "2_1", "1_5"]
    with pytest.raises(UserError, match="nothing to resume"):
        submitted.resume()


def test_a_member_that_may_not_be_resumed_is_left_out_and_keeps_no_other_back(cluster: Cluster, capsys: Capsys) -> None:
    submitted = cluster.submit("env.X=1,2,3")
    never, failed, cancelled = submitted.folders
    end(never, State.FAILED, again=False)
    end(failed, State.FAILED)
    end(cancelled, State.CANCELLED)
    assert [run.id for run in submitted.resume()] == [failed.run_id, cancelled.run_id]
    said = capsys.readouterr().err
    assert said.startswith(
        f"torusrun: left out: {never.run_id} is FAILED (so it ended): its exit code forbids another"
    ), said
    for run in (failed, cancelled):
        end(run, State.COMPLETED, 2)
    with pytest.raises(UserError, match="no member can be resumed: .* its exit code forbids another attempt"):
        submitted.resume()
    assert [run.id for run in submitted.resume(force=True)] == [never.run_id]


def test_members_at_work_count_when_others_are_resumed(cluster: Cluster) -> None:
    submitted = cluster.submit()
    again, others = submitted.folders[:2], submitted.folders[2:]
    for run in again:
        end(run, State.FAILED)
    submitted.resume()
    assert "--dependency=afterany:1\n" in cluster.script(2), "four others may take both places"
    for run in again:
        end(run, State.FAILED, 2)
    for run in others[:-1]:
        end(run, State.COMPLETED)
    submitted.resume()
    assert "--dependency" not in cluster.script(3), "one place is free"
    assert "#SBATCH --array=0-1%1\n" in cluster.script(3), "one member is at work, and two may be"


def test_jobs_at_work_count_when_members_that_keep_going_are_resumed(cluster: Cluster) -> None:
    (cluster.home / "run.yaml").write_text(
        f"name: x\nsite: ./site.yaml\nkeep_going: {{attempts: 3}}\n{COMMAND}checkpoints: {{folder: kept}}\n"
    )
    submitted = cluster.submit("env.X=1,2,3,4")
    end(submitted.folders[0], State.FAILED)
    ledger.append(submitted.folders[0].ledger, KeptGoing(1, "it failed"))
    submitted.resume()
    assert jobs_of(submitted)[1:] == ["2", "3", "4"]
    assert "--dependency=afterany:3\n" in cluster.script(5), "the third and the fourth have the places before it"


def test_the_hosts_are_asked_for_once_for_all_members(cluster: Cluster) -> None:
    cluster.program("sinfo", f'echo >> {cluster.home}/asked; for n in 1 2 3; do echo "debug*|n$n"; done')
    assert main(["nodes", "add", "n3", "--site", str(cluster.home / "site.yaml"), "--reason", "slow"]) == 0
    cluster.submit()
    assert "#SBATCH --exclude=n3\n" in cluster.script(1)
    assert (cluster.home / "asked").read_text() == "\n", "one query for six members"


def test_a_refused_resume_takes_the_attempts_back(cluster: Cluster) -> None:
    submitted = cluster.submit()
    for run in submitted.folders:
        end(run, State.FAILED)
    cluster.refuses_from(2)
    with pytest.raises(SiteError, match="no"):
        submitted.resume()
    assert [(view.attempt, view.state) for view in submitted.status()] == [(1, State.FAILED)] * 6
    assert not [*submitted.folder.folder.glob("*/attempts/*2")]


def test_after_a_lost_answer_every_member_finds_its_task(cluster: Cluster) -> None:
    silent = TAKES.replace("$JOBS", str(cluster.file)).splitlines()[:-1]
    cluster.program("sbatch", "\n".join(silent))
    with pytest.raises(NoAnswer, match="a job may exist anyway"):
        cluster.submit()
    found = open_sweep("last")
    seen = views(found.folders, time.time() + LATER_S, fresh=True)
    assert [view.job for view in seen] == [f"1_{task}" for task in range(6)]


def test_no_other_client_takes_members_for_lost_while_a_slow_client_submits_them(
    cluster: Cluster, monkeypatch: Patch
) -> None:
    seen: list[State] = []
    submits = Client.submit

    def slow(self: Client, *given: Any, **named: Any) -> str:
        found = open_sweep("last")
        seen.extend(view.state for view in views(found.folders, time.time() + LATER_S, fresh=True))
        with pytest.raises(UserError, match="are being submitted already"):
            found.resume()
        return submits(self, *given, **named)

    monkeypatch.setattr(Client, "submit", slow)
    monkeypatch.setattr(sweep_folder, "LOCK_S", 0.0)
    cluster.submit("env.X=1,2")
    assert seen == [State.UNKNOWN] * 2, "a LOST member would be submitted again by resume"


def test_members_share_one_copy_of_the_code_and_survive_one_another(cluster: Cluster) -> None:
    code = cluster.home / "code"
    (code / "part").mkdir(parents=True)
    (code / "part/train.py").write_text("print(1)\n")
    (cluster.home / "run.yaml").write_text(
        "name: x\nsite: ./site.yaml\ncommand: [python3, part/train.py]\ncode: ./code\n"
    )
    submitted = cluster.submit("env.X=1,2,3")
    copies = [run.code / "part/train.py" for run in submitted.folders]
    assert len({copy.stat().st_ino for copy in copies}) == 1
    assert not copies[0].stat().st_mode & 0o222, "what one member writes would change the code of all"
    shutil.rmtree(submitted.folders[0].folder)
    assert [run.id for run in submitted.runs] == [f"{submitted.id}.1", f"{submitted.id}.2"]
    assert copies[1].read_text() == "print(1)\n"
    shutil.rmtree(submitted.folder.folder)
    assert not index.runs() and not [*index.place().iterdir()], "the links of removed members must be removed"


def test_verbs_take_the_name_of_a_sweep_for_its_members(cluster: Cluster, tmp_path: Path, capsys: Capsys) -> None:
    cluster.program("scancel", f'echo "$@" > {cluster.home}/cancelled')
    submitted = cluster.submit("env.X=1,2,3")
    end(submitted.folders[0], State.COMPLETED)
    end(submitted.folders[1], State.FAILED)
    assert prints(capsys, "cancel", submitted.id).count("requested") == 1
    assert (cluster.home / "cancelled").read_text() == "1_2\n"
    end(submitted.folders[2], State.CANCELLED)
    assert main(["collect", submitted.id, str(tmp_path / "all")]) == 0
    assert len([*(tmp_path / "all").iterdir()]) == 3
    assert main(["rm", f"{submitted.id}.0", "--yes"]) == 0
    assert [run.id for run in submitted.runs] == [f"{submitted.id}.1", f"{submitted.id}.2"]
    assert submitted.folder.record.exists(), "the others still need it"
    assert "is a sweep: name one of its members" in refuses(capsys, "logs", submitted.id)
    assert main(["rm", submitted.id, "--yes"]) == 0
    assert not index.runs() and not submitted.folder.folder.exists(), "nothing of it may stay"


def test_the_id_of_a_removed_member_names_no_other_member(cluster: Cluster, capsys: Capsys) -> None:
    submitted = cluster.submit("env.X=0,1,2,3,4,5,6,7,8,9,10")
    for run in submitted.folders:
        end(run, State.COMPLETED)
    assert [main(["rm", f"{submitted.id}.1", "--yes"]) for _ in range(2)] == [0, 2]
    assert f"there is no run '{submitted.id}.1'" in capsys.readouterr().err
    assert submitted.runs[-1].id == f"{submitted.id}.10", "the next member whose id begins so must stay"


def test_a_sweep_is_one_line_of_status_and_a_table(cluster: Cluster, capsys: Capsys) -> None:
    submitted = cluster.submit("env.X=1,2,3")
    for accuracy, run in zip((0.5, 0.75, None), submitted.folders, strict=True):
        end(run, State.COMPLETED if accuracy else State.FAILED)
        row = {"event": "step", "attempt": 1, "step": 3, "t": 1.0, "loss": 0.25, "accuracy": accuracy, "mine": 4.5}
        run.metrics.write_text(json.dumps(row) + "\n")
    _, line = prints(capsys, "status").splitlines()
    assert line.startswith(submitted.id) and "FAILED" in line
    assert line.endswith("3 members: 1 FAILED, 2 COMPLETED; best accuracy 75.00% (member 1)")
    assert len(json.loads(prints(capsys, "status", submitted.id, "--json"))["runs"]) == 3
    title, *rows = prints(capsys, "status", submitted.id, "--best", "accuracy").splitlines()
    assert title.split() == ["MEMBER", "env.X", "STATE", "STEP", "LOSS", "ACCURACY", "MINE"]
    assert [row.split()[:2] for row in rows] == [["1", "2"], ["0", "1"], ["2", "3"]]
    assert "write max:mine or min:mine" in refuses(capsys, "status", submitted.id, "--best", "mine")
    assert main(["status", submitted.runs[0].id, "--best", "accuracy"]) == 2
    assert "--best sorts the members of one sweep" in capsys.readouterr().err


def test_a_sweep_by_verbs_of_one_run_is_refused_with_advice(cluster: Cluster, capsys: Capsys) -> None:
    cluster.submit("env.X=1,2")
    run = str(cluster.home / "run.yaml")
    assert "leave out --in or the sweep" in refuses(capsys, "submit", run, "--sweep", "env.X=1,2", "--in", "last")
    assert main(["submit", run, "--sweep", "env.X=1,2", "--dry-run", "--ask"]) == 2
    assert "leave out --ask or the sweep" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"submit it with torusrun\.sweep"):
        submit(run, settings=["sweep={env.X: [1]}"])
    assert "--save writes one run" in refuses(capsys, "run", "--save", "new.yaml", "--sweep", "env.X=1,2", "--", "true")


CHANGES = {"os.mkdir", "os.symlink", "os.rename", "os.link", "os.remove", "os.rmdir", "os.chmod", "subprocess.Popen"}


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Do `work` in a process of its own that is killed before its n-th change of a file; whether it was killed."""
    child = os.fork()
    if child == 0:
        left = number

        def hook(event: str, given: tuple[object, ...]) -> None:
            nonlocal left
            writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)
            left -= event in CHANGES or bool(writes)
            if left < 0:
                os._exit(9)

        sys.addaudithook(hook)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_resuming_client_killed_before_any_change_loses_and_doubles_no_member(
    cluster: Cluster, monkeypatch: Patch
) -> None:
    for module in (lookup, outcome):
        monkeypatch.setattr(module, "SHOWN_AFTER_S", -LATER_S)
    failed = cluster.submit("env.X=1,2")
    for run in failed.folders:
        end(run, State.FAILED)
    shutil.copytree(cluster.home / "runs", cluster.home / "before")
    number = 0
    seen = set()
    while killed_at(number, failed.resume):
        number += 2
        found = views(failed.folders, fresh=True)
        seen |= {view.state for view in found}
        if len(cluster.jobs) == 2:
            assert [view.job for view in found] == ["2_0", "2_1"], f"killed before change {number}"
        elif number % 10 == 0:  # the slow part
            assert State.PENDING not in seen and len(failed.resume()) == 2, f"killed before change {number}"
            assert len(cluster.jobs) == 2, f"killed before change {number}: {cluster.jobs}"
        shutil.rmtree(cluster.home / "runs")
        shutil.copytree(cluster.home / "before", cluster.home / "runs")
        for kept in index.place().parent.iterdir():  # answers of the scheduler
            if kept != index.place():
                shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        cluster.file.write_text(f"1 {failed.id}-1 1\n")
    assert seen == {State.FAILED, State.LOST, State.PENDING} and number > 20, f"{number} changes: {seen}"


def test_a_client_killed_before_any_change_leaves_all_members_or_none(cluster: Cluster, monkeypatch: Patch) -> None:
    for module in (lookup, outcome):  # no submission is too young to be looked for
        monkeypatch.setattr(module, "SHOWN_AFTER_S", -LATER_S)
    monkeypatch.setattr(index, "YOUNG_S", 0.0)  # and none too young to be cleaned
    planned = plan_sweep(cluster.home / "run.yaml", values=["env.X=1,2"])
    assert proposed(planned)[0].text()  # loads what is loaded late, once for all clients
    number = 0
    seen: set[State] = set()
    while killed_at(number, lambda: first(planned, cluster.home)):
        number += 1
        members = index.runs()
        assert len(members) in (0, 2), f"killed before change {number}: {members}"
        there = [path.name for path in (cluster.home / "runs").glob("*")]
        assert len(there) == (1 if members else 0), f"killed before change {number}: left behind {there}"
        assert len(cluster.jobs) <= 1, f"killed before change {number}: submitted twice"
        states = {view.state for view in views(members, fresh=True)}
        expected = {State.PENDING} if cluster.jobs else {State.LOST} if members else set()
        assert states == expected, f"killed before change {number}: {states}"
        if states - seen == {State.LOST}:
            assert len(open_sweep("last").resume()) == 2 and len(cluster.jobs) == 1, "resume submits them"
        seen |= states
        shutil.rmtree(cluster.home / "runs", ignore_errors=True)
        shutil.rmtree(index.place().parent, ignore_errors=True)
        cluster.file.write_text("")
    assert seen == {State.PENDING, State.LOST} and number > 30, f"{number} changes: too few to have met all"


def test_members_of_a_refused_later_array_of_a_resume_stay_failed_until_they_are_resumed(cluster: Cluster) -> None:
    cluster.site("largest_array: 2")
    submitted = cluster.submit("env.X=1,2,3,4")
    for run in submitted.folders:
        end(run, State.FAILED)
    cluster.refuses_from(4)
    with pytest.raises(SiteError, match="no"):
        submitted.resume()
    assert [view.state for view in submitted.status()] == [State.PENDING] * 2 + [State.FAILED] * 2
    cluster.refuses_from(9)
    assert [run.id for run in submitted.resume()] == [f"{submitted.id}.2", f"{submitted.id}.3"]
    states = [view.state for view in submitted.status()]
    assert states == [State.PENDING] * 4, "an end of the refused attempt must not hide the new one"


@pytest.fixture(autouse=True)
def no_link_is_young(monkeypatch: Patch) -> None:
    """The index leaves young links alone; here they are cleaned at once."""
    monkeypatch.setattr(index, "YOUNG_S", 0.0)
