"""What an attempt asks for after one that lacked memory or time: by its job, and by the user's next verb."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.attempts.keep_going import Here, next_step
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, KeptGoing, Started, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.decide import Resume, Stop, more

GROW = "grow: {memory: 1.5, time: 2, most: {memory: 100GiB, time: 3h}}"
RUN = f"time: 1h\nrequest: {{memory: 40GiB}}\ncode: none\ncommand: ['true']\nkeep_going: {{attempts: 4, {GROW}}}"


@pytest.fixture
def cluster(home: object, monkeypatch: Patch) -> SlurmPrograms:
    return SlurmPrograms(home, monkeypatch, RUN)  # type: ignore[arg-type]


def submitted(cluster: SlurmPrograms) -> RunFolder:
    assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    (folder,) = (path for path in (cluster.home / "runs").iterdir() if path.is_dir())
    return RunFolder(folder)


def ends(run: RunFolder, cause: Cause, number: int = 1) -> None:
    end = End(cause.state, f"it was {cause.value}", cause=cause)
    ledger.append(run.ledger, Started(number, f"{number}_0", ("n1",), (1,)))
    end.write(run.attempt(number).end)
    ledger.append(run.ledger, Ended.by(number, end))


def asked(run: RunFolder, number: int) -> tuple[str, str]:
    """The memory and the minutes that an attempt's script asks for."""
    script = run.attempt(number).script.read_text()
    return tuple(re.findall(rf"#SBATCH --{key}=(\w+)", script)[0] for key in ("mem", "time"))  # type: ignore[return-value]


def after(run: RunFolder, number: int = 1, first: int = 1) -> Stop:
    step = next_step(run, Here(str(number), f"{number}_1", first=first, hosts=1), begin=True)
    assert isinstance(step, Stop)
    return step


def test_a_job_submits_attempts_that_ask_for_more_memory_until_the_most(cluster: SlurmPrograms) -> None:
    run = submitted(cluster)
    assert asked(run, 1) == ("40960M", "60")
    ends(run, Cause.OUT_OF_MEMORY)
    assert after(run).why == "ended for lack of memory, and the next attempt asks for 60.0 GiB a node, in another job"
    assert asked(run, 2) == ("61440M", "60") and "--array=0-3%1" in run.attempt(2).script.read_text()
    events = ledger.events(run.ledger)
    intent = ledger.last(events, Submitting, 2)
    assert intent and intent.changes.memory_bytes == 60 * 2**30 and intent.follows == 1 and not intent.by
    assert not ledger.last(events, KeptGoing, 1)
    for number, gib in ((2, 90), (3, 100)):
        ends(run, Cause.OUT_OF_MEMORY, number)
        after(run, number, first=number)
        assert asked(run, number + 1)[0] == f"{gib * 1024}M"
    ends(run, Cause.OUT_OF_MEMORY, 4)
    assert not isinstance(next_step(run, Here("4", "4_1", first=4, hosts=1), begin=True), Stop), "as without grow"
    assert not run.attempt(5).script.exists() and run.attempt(5).folder.exists()


def test_time_grows_only_without_a_new_checkpoint(cluster: SlurmPrograms) -> None:
    run = submitted(cluster)
    ends(run, Cause.TIME_LIMIT)
    assert "the next attempt asks for 7200 s, in another job" in after(run).why
    assert asked(run, 2) == ("40960M", "120")
    ends(run, Cause.TIME_LIMIT, 2)
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "model.pt").write_text("new")
    assert next_step(run, Here("2", "2_1", first=2, hosts=1), begin=True) == Resume(3)


@pytest.mark.parametrize("cause", [Cause.OUT_OF_DEVICE_MEMORY, Cause.PROGRAM, Cause.HOST_LOST, Cause.KILLED])
def test_nothing_grows_after_other_ends(cluster: SlurmPrograms, cause: Cause) -> None:
    run = submitted(cluster)
    ends(run, cause)
    main(["resume", run.run_id])
    assert asked(run, 2) == ("40960M", "60")


def test_a_node_that_may_not_submit_leaves_it_to_the_users_next_verb(cluster: SlurmPrograms, capsys: Capsys) -> None:
    run = submitted(cluster)
    ends(run, Cause.OUT_OF_MEMORY)
    cluster.program("sbatch", "echo 'sbatch: error: Access denied' >&2; exit 1")
    step = after(run)
    assert "which this job cannot submit" in step.why and f"`torusrun resume {run.run_id}` does" in step.why
    closed = ledger.last(ledger.events(run.ledger), KeptGoing, 1)
    assert closed and closed.why == step.why
    cluster.takes()
    assert main(["resume", run.run_id]) == 0
    assert "attempt 1 ended for lack of memory, the next asks for 60.0 GiB a node" in capsys.readouterr().err
    assert asked(run, 3 if run.attempt(3).folder.exists() else 2)[0] == "61440M"


def test_what_the_user_says_replaces_what_would_grow(cluster: SlurmPrograms, capsys: Capsys) -> None:
    run = submitted(cluster)
    ends(run, Cause.TIME_LIMIT)
    prints(capsys, "resume", run.run_id, "--time", "90m")
    assert asked(run, 2)[1] == "90"


@pytest.mark.parametrize(
    ("grow", "says"),
    [
        ("{memory: 2}", "'keep_going.grow.memory' has no end; write 'keep_going.grow.most.memory'"),
        ("{time: 2}", "'keep_going.grow.time' has no end"),
        ("{time: 1}", "must be above 1"),
    ],
)
def test_growth_without_an_end_is_a_mistake(cluster: SlurmPrograms, capsys: Capsys, grow: str, says: str) -> None:
    file = str(cluster.home / "run.yaml")
    assert says in refuses(capsys, "plan", file, "--set", f"keep_going={{attempts: 2, grow: {grow}}}")


def test_memory_that_nobody_asked_for_cannot_grow(cluster: SlurmPrograms, capsys: Capsys) -> None:
    said = refuses(capsys, "plan", str(cluster.home / "run.yaml"), "--set", "request={qos: long}")
    assert "multiplies 'request.memory', and neither run nor site has it" in said


@given(st.floats(0.001, 1e15), st.floats(1.1, 100) | st.none(), st.floats(0, 1e15))
def test_growth_ends_at_the_most_and_never_shrinks(now: float, factor: float | None, most: float) -> None:
    steps = 0
    while (wanted := more("time", now, factor, most)) is not None:
        assert now < wanted.amount <= most
        now, steps = wanted.amount, steps + 1
        assert steps < 500
    assert factor is None or now >= most or now * factor <= now
    assert State.OOM is Cause.OUT_OF_MEMORY.state


def test_a_user_may_ask_for_other_memory_and_later_attempts_keep_it(cluster: SlurmPrograms, capsys: Capsys) -> None:
    run = submitted(cluster)
    ends(run, Cause.PROGRAM)
    prints(capsys, "resume", run.run_id, "--mem", "48G")
    ends(run, Cause.PROGRAM, 2)
    prints(capsys, "resume", run.run_id)
    assert asked(run, 2)[0] == asked(run, 3)[0] == "49152M"
    ends(run, Cause.PROGRAM, 3)
    assert "--mem: 'lots' is not a size of memory" in refuses(capsys, "resume", run.run_id, "--mem", "lots")
