"""What users see of roles: their states, the lines of their ranks, and what starts where."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, prints, refuses
from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.job.start.prepare import prepare
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import Placement, place
from torusrun.orchestrator.run.folder import index, ledger
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.how_ended import name as rank_name
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.plan.roles import with_services
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.run.state.roles import port_of, rank_of, roles
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers import launchers
from torusrun.orchestrator.show.page import document
from torusrun.orchestrator.show.screen.detail import nodes
from torusrun.orchestrator.show.screen.nodes import table

SITE = "scheduler: slurm\nlauncher: srun\nnode: {ranks: 2, gpus: 4, gpu_cores: [0-7, 0-7, 8-15, 8-15]}\nruns: runs\n"
GRPO = """name: grpo
site: site.yaml
code: none
grid: 2x2
roles:
  rollout: {nodes: 2, command: [serve, "{port}"], ready: {http: /health, within: 20m}}
  judge: {on: rollout, gpus: 1, command: [judge], env: {MODE: strict}, after: [rollout]}
  trainer: {nodes: 2, command: [train, "{rollout.url}"], after: [rollout, judge], main: true}
"""
HOSTS = ["n1", "n2", "n3", "n4"]
ROLLOUT, JUDGE = 4, 6  # the numbers of their first ranks in the launch
FAILED = End(State.FAILED, "rollout rank 1 (n4, local rank 0) was killed by SIGKILL", cause=Cause.KILLED)


@dataclass(frozen=True)
class Made:
    """A run of four roles at work, and what it shows."""

    run: RunFolder
    attempt: Attempt
    placement: Placement

    def view(self) -> View:
        return read_record(self.run).view(Status(State.RUNNING), time.time())

    def record(self, role: str, state: str, ago_s: float = 0.0, **more: float) -> None:
        about = {"state": state, "t": time.time() - ago_s, "check": "/health", "within_s": 1200.0, **more}
        write_json(self.attempt.role_state(role), about)

    def start(self, *ranks: int, **more: int) -> None:
        for rank in ranks:
            record = {"rank": rank, "host": self.placement.slots[rank].host, "started_s": 1000.0 + rank, **more}
            write_json(self.attempt.rank_start(rank), record)

    def end(self) -> None:
        """The end of all ranks, the first of them the second one of the rollout."""
        for slot in self.placement.slots:
            in_role = slot.rank - self.placement.of_role(slot.role)[0].rank
            culprit = slot.rank == ROLLOUT + 1
            how = {"signal": 9} if culprit else {"exit_code": 0, "told": True, "meaning": Meaning.DONE}
            end = RankEnd(slot.rank, slot.host, 0, 2000.0 + slot.rank, role=slot.role, role_rank=in_role, **how)  # type: ignore[arg-type]
            end.write(self.attempt.rank_end(slot.rank))
        FAILED.write(self.attempt.end)
        ledger.append(self.run.ledger, Ended(1, state=FAILED.state, reason=FAILED.reason))


@pytest.fixture
def planned(home: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(home)
    Path("site.yaml").write_text(SITE.replace("runs: runs", f"runs: {home}/runs"))
    Path("run.yaml").write_text(GRPO)
    return plan("run.yaml")


@pytest.fixture
def made(planned: Plan) -> Made:
    run = RunFolder(planned.folder)
    attempt = run.attempt(1)
    attempt.folder.mkdir(parents=True, mode=private.FOLDER)
    with index.announced(run):
        write_text(run.spec, GRPO)
        for path in (run.plan, attempt.plan):
            write_json(path, planned.as_json())
    placement = with_services(planned.run, planned.site, place(Grid((2, 2)), HOSTS[:2], 2), HOSTS)
    ledger.append(run.ledger, Submitting(1, name=planned.run_id))
    ledger.append(run.ledger, Submitted(1, job="7", scheduler="slurm"))
    prepare(planned, run, attempt, placement, {}, launchers.named("srun"))
    ledger.append(run.ledger, Started(1, job="7", hosts=tuple(HOSTS), grid=(2, 2)))
    write_text(run.current, "1\n")
    for slot in placement.slots:
        write_text(attempt.rank_log(slot.rank), f"a line of {slot.rank}\n")
    for role, host in (("rollout", "n3"), ("judge", "n3"), ("trainer", "n1")):
        write_json(attempt.role_place(role), {"address": host, "port": 8000}, secret=True)
    return Made(run, attempt, placement)


def test_a_main_role_that_waits_says_for_which_service(made: Made) -> None:
    assert made.view().waiting == "rollout: not started"
    made.start(ROLLOUT, ROLLOUT + 1)
    made.record("rollout", "waiting", ago_s=181)
    view = made.view()
    assert (view.waiting, view.reason) == ("rollout: waiting for /health, 3m of 20m", "")
    assert view.roles == {"trainer": "not started", "rollout": "waiting", "judge": "not started"}
    made.record("rollout", "ready", after_s=200.0)
    made.start(0)
    made.record("judge", "ready", after_s=0.0)
    assert made.view().waiting == "1 of 4 ranks started"


def test_a_service_that_does_not_answer_any_more_is_reported(made: Made) -> None:
    made.start(*range(8))
    made.record("judge", "ready", after_s=0.0)
    made.record("rollout", "ready", after_s=200.0)
    assert made.view().remarks == ""
    made.record("rollout", "silent")
    at = time.strftime("%H:%M", time.localtime(json.loads(made.attempt.role_state("rollout").read_text())["t"]))
    assert made.view().reason == f"rollout is silent: /health has not answered since {at}"
    made.record("rollout", "waiting", ago_s=61)
    assert made.view().reason == "rollout: waiting for /health, 1m of 20m", "it was started again"


def test_the_nodes_on_a_screen_name_the_roles_of_their_ranks(made: Made) -> None:
    made.start(*range(8))
    rows = table(nodes(made.attempt, time.time()), 100, ranks=True).rows
    names = {row.name.strip(): row.heard.text for row in rows}
    assert names["n3"].endswith("rollout 0, judge 0") and names["n1"].endswith("trainer 0, 1") and "judge 1" in names


@pytest.mark.parametrize("content", ["{", "[]", '{"state": 3, "t": 0}', '{"state": "waiting"}'])
def test_a_damaged_record_of_a_role_is_none(made: Made, content: str) -> None:
    made.attempt.role_state("rollout").write_text(content)
    assert made.view().roles["rollout"] == "not started"


def test_a_role_of_a_placement_leads_to_no_other_folder(made: Made) -> None:
    kept = json.loads(made.attempt.placement.read_text())
    kept["roles"] = ["trainer"] * 4 + ["../x"] * 4
    made.attempt.placement.write_text(json.dumps(kept))
    assert not made.view().roles, "it is no placement"


def test_ranks_are_named_by_role_and_number(made: Made) -> None:
    assert rank_name(made.placement, 1) == "trainer rank 1 (n1, local rank 1)"
    assert rank_name(made.placement, JUDGE + 1) == "judge rank 1 (n4, local rank 0)"
    assert ended(How.HOST_LOST, made.placement, hosts=["n3"]).reason == "lost n3 (rollout rank 0, judge rank 0)"
    assert rank_of("x", made.attempt, "", 3) == 3 and rank_of("x", made.attempt, "judge", 1) == JUDGE + 1
    assert port_of(made.attempt, "rollout") == 8000


def test_the_logs_of_a_role_are_those_of_its_ranks(made: Made, capsys: Capsys) -> None:
    run = made.run.run_id
    made.start(*range(8))
    made.end()
    assert prints(capsys, "logs", run) == "a line of 0\n"
    assert prints(capsys, "logs", run, "--role", "judge", "--rank", "1") == "a line of 7\n"
    assert (
        prints(capsys, "logs", run, "--role", "judge", "--all") == "  judge 0 | a line of 6\n  judge 1 | a line of 7\n"
    )
    everything = prints(capsys, "logs", run, "--all").splitlines()
    assert everything[0] == "trainer 0 | a line of 0" and everything[4] == "rollout 0 | a line of 4"
    assert "its roles are trainer, rollout, judge; did you mean 'judge'?" in refuses(
        capsys, "logs", run, "--role", "judgs"
    )
    assert "no rank 2 of judge: its ranks are 0 to 1" in refuses(capsys, "logs", run, "--role", "judge", "--rank", "2")
    assert "--role names another role" in refuses(capsys, "logs", run, "--rank", "5")


def test_the_first_error_is_that_of_the_role_that_failed(made: Made, capsys: Capsys) -> None:
    made.start(*range(8))
    write_text(made.attempt.rank_log(ROLLOUT + 1), "Traceback (most recent call last):\nValueError: no\n")
    made.end()
    errors = prints(capsys, "logs", made.run.run_id, "--errors").splitlines()
    assert errors[1:] == ["rollout 1 | ValueError: no", "rollout rank 1 (n4, local rank 0) was killed by SIGKILL"]
    said = prints(capsys, "explain", made.run.run_id)
    assert "error     of rollout rank 1:" in said and FAILED.reason in said
    (failed,) = json.loads(prints(capsys, "explain", made.run.run_id, "--json"))["failed"]
    assert (failed["rank"], failed["role"], failed["role_rank"]) == (ROLLOUT + 1, "rollout", 1)


def test_a_run_and_its_page_show_each_role(made: Made, capsys: Capsys) -> None:
    made.start(*range(8))
    made.start(ROLLOUT, restarts=2)
    made.record("rollout", "ready", after_s=200.0)
    made.end()
    shown = dict(line.split(None, 1) for line in prints(capsys, "show", made.run.run_id).splitlines())
    rows = [line.split(None, 2) for line in prints(capsys, "show", made.run.run_id).splitlines()]
    assert ["role", "rollout", "ended; 2 ranks on n[3-4], port 8000"] in rows
    assert shown["roles.rollout.ready.http"] == "/health" and "roles.rollout.alive" not in shown, "it is the default"
    assert "strict" not in str(shown)
    (known,) = [
        role
        for role in json.loads(prints(capsys, "show", made.run.run_id, "--json"))["roles"]
        if role["name"] == "rollout"
    ]
    assert known["ranks"] == [ROLLOUT, ROLLOUT + 1] and known["checked"]["after_s"] == 200.0
    page = document.html([made.run])
    assert "<h2>Roles</h2>" in page and "3.3 min" in page
    assert set(roles(made.attempt)) == {"trainer", "rollout", "judge"}


def test_a_plan_shows_what_starts_where_and_in_which_order(planned: Plan, capsys: Capsys) -> None:
    said = prints(capsys, "plan", "run.yaml")
    assert "4: 2 of the main role, 2 ranks and 4 GPUs on each; 2 of services" in said
    rows = [line.split() for line in said.splitlines()]
    first = next(number for number, row in enumerate(rows) if row[:1] == ["rollout"])
    assert rows[first] == [
        *["rollout", "2", "-", "1", "0-2", "0-11", "-", "http", "/health", "within", "20m", "serve"],
        "'{port}'",
    ]
    assert rows[first + 1][:7] == ["judge", "2", "rollout", "1", "3", "12-15", "rollout"]
    assert rows[first + 2][0] == "trainer"
    table = json.loads(prints(capsys, "plan", "run.yaml", "--json"))["roles"]
    assert [row["role"] for row in table] == ["rollout", "judge", "trainer"] and table[1]["gpus"] == [3]
    assert table[1]["cores"] == [12, 13, 14, 15]


def test_a_dry_run_shows_the_program_and_the_variables_of_each_role(planned: Plan, capsys: Capsys) -> None:
    said = prints(capsys, "submit", "--dry-run", "run.yaml")
    assert "8 ranks on 4 hosts, <host 1> to <host 4>, 4 of them of the main role." in said
    assert "Program of every rank of trainer" in said and "Roles, in the order of their start" in said
    assert "train 'http://<address of host 3>:<port of rollout>'" in said
    judge = said.partition("Environment of rank 0's program of judge")[2].partition("\n\n")[0]
    assert "MODE=strict" in judge and "CUDA_VISIBLE_DEVICES=3" in judge and "WORLD_SIZE=2" in judge
    assert "TORUSRUN_ROLLOUT_HOSTS='<host 3>,<host 4>'" in judge
    shown = json.loads(prints(capsys, "submit", "--dry-run", "--json", "run.yaml"))["roles"]
    assert [role["role"] for role in shown] == ["trainer", "rollout", "judge"]
