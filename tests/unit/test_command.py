"""A command of the user's own: what may be written, and how its exit codes and its environment come out."""

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base import shipped
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.remote import archive
from torusrun.orchestrator.run.attempts.create import no_code
from torusrun.orchestrator.run.code.select import select
from torusrun.orchestrator.run.folder.checkpoints import content, newest
from torusrun.orchestrator.run.folder.records import Meaning
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.program import command
from torusrun.orchestrator.run.program.what_runs import Program, master_environment, ranks_environment
from torusrun.training.script.given import Given

RUN = "name: mine\nsite: local\nnodes: 1\nranks_per_node: 2\ncommand: [python, train.py]\n"


@pytest.fixture
def spec(tmp_path: Path, home: Path) -> Path:
    path = tmp_path / "work" / "run.yaml"
    path.parent.mkdir()
    path.write_text(RUN)
    (path.parent / "train.py").write_text("")
    return path


def prepared(spec: Path, more: str = "") -> tuple[Plan, RunFolder]:
    """The plan of a run with these keys, and its folder with a place for the code."""
    spec.write_text(RUN + more)
    made = plan(spec)
    run = RunFolder(made.folder)
    run.code.mkdir(parents=True)
    return made, run


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("train: {epochs: 3}", "run.yaml:6:8: 'train' and 'command' exclude each other"),
        ("program: measure", "run.yaml:6:10: 'program: measure' and 'command' exclude each other"),
        ("exit_codes: {later: [0, 75]}", "'exit_codes': 0 means two things"),
        ("exit_codes: {later: [256]}", "'exit_codes.later[0]' must be at most 255"),
        ("metrics: {pattern: '('}", "is not a regular expression"),
        ("metrics: {pattern: 'loss=(.*)'}", "has no named group"),
        (
            "metrics: {pattern: '(?P<step>.*) (?P<lost>.*)'}",
            "run.yaml:6:20: 'metrics.pattern' has an unknown group 'lost'",
        ),
        (f"metrics: {{pattern: '(?P<loss>{'x' * 1000})'}}", "must have at most 1000 characters, and has 1010"),
        ("stop: {signal: SIGKILL}", "'stop.signal' must be one of SIGTERM"),
        ("stop: {before: 2h}", "'stop.before' must be shorter than 'time'"),
        ("code: nowhere", "nowhere is not a folder"),
        ("checkpoints: {folder: ../ckpt}", "run.yaml:6:23: 'checkpoints.folder' must be a folder below the code"),
        ("checkpoints: {folder: .}", "'checkpoints.folder' must be a folder below the code"),
    ],
)
def test_what_does_not_fit_is_reported_with_its_place(more: str, says: str, spec: Path, capsys: Capsys) -> None:
    spec.write_text(f"{RUN}{more}\n")
    assert says in refuses(capsys, "plan", str(spec))


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("[torchrun, --nproc-per-node, '2', train.py]", "torchrun"),
        ("[/opt/venv/bin/torchrun, train.py]", "torchrun"),
        ("[python, -u, -m, torch.distributed.run, train.py]", "torch.distributed.run"),
        ("[bash, -c, 'cd x && OMP_NUM_THREADS=1 torchrun train.py']", "torchrun"),
        ("[accelerate, launch, train.py]", "accelerate launch"),
        ("[deepspeed, train.py]", "deepspeed"),
        ("[bash, -c, '(torchrun)']", "torchrun"),
        ("[/envs/deepspeed/bin/python, train.py]", ""),
        ("[/opt/torchrun-3/python, train.py]", ""),
        ("[deepspeed-train.sh]", ""),
        ("[torchrun, --standalone, train.py]", ""),
        ("[torchrun, --rdzv-backend=c10d, --rdzv-endpoint=n1:1, train.py]", ""),
        ("[python, train.py, --strategy, deepspeed, torchrun]", ""),
        ("[bash, -c, 'test $LOCAL_RANK != 0 || torchrun train.py']", ""),
    ],
)
def test_several_programs_that_start_the_ranks_of_a_node_are_refused(
    command: str, program: str, spec: Path, capsys: Capsys
) -> None:
    spec.write_text(RUN.replace("[python, train.py]", command))
    main(["plan", str(spec)])
    said = capsys.readouterr().err
    wrong = f"run.yaml:5:10: 'command': {program} starts the ranks of a node itself, and 2 of it on each node would"
    assert (wrong in said) is bool(program) and ("collide" in said) is bool(program)
    spec.write_text(RUN.replace("[python, train.py]", command).replace("ranks_per_node: 2", "ranks_per_node: 1"))
    main(["plan", str(spec)])
    assert "collide" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "key", ["code: .", "stop: {before: 5m}", "checkpoints: {folder: x}", "exit_codes: {later: [3]}"]
)
def test_a_key_of_a_command_without_one_is_refused(key: str, spec: Path, capsys: Capsys) -> None:
    spec.write_text(f"name: x\nsite: local\nranks_per_node: 2\n{key}\n")
    assert f"{key.split(':')[0]!r} belongs to a 'command'" in refuses(capsys, "plan", str(spec))


def test_a_run_that_says_nothing_of_what_to_run_is_refused(spec: Path, capsys: Capsys) -> None:
    spec.write_text("name: x\nsite: local\n")
    for verb in ("plan", "submit", "hold"):
        said = refuses(capsys, verb, str(spec))
        assert said.startswith(f"torusrun: {spec}: there is neither 'train' nor 'command'; add 'train: "), said
        assert said.count("\n") == 1
    assert main(["plan", str(spec), "--set", "train.epochs=3"]) == 0
    assert main(["plan", str(spec), "--set", "program=measure"]) == 0, "it measures the digits unless a train says more"


def test_the_plan_shows_the_command_and_its_code(spec: Path, capsys: Capsys) -> None:
    said = prints(capsys, "plan", str(spec))
    assert "command     python train.py\n" in said and f"code        {spec.parent}, copied at submit\n" in said
    assert "the time of this command is not known" in said


def test_exit_codes_mean_what_the_run_says(spec: Path) -> None:
    made, run = prepared(spec, "exit_codes: {later: [75, 3], never: [78]}\n")
    program = command.program(made, run, run.attempt(1), "/entry")
    meant = {code: program.meaning(code) for code in (0, 1, 3, 75, 78, -9)}
    assert meant == {
        0: Meaning.DONE, 1: Meaning.FAILED, 3: Meaning.LATER, 75: Meaning.LATER, 78: Meaning.NEVER, -9: Meaning.FAILED,
    }  # fmt: skip
    kept = json.loads(json.dumps(asdict(program)))
    assert record_of(Program, kept, str) == program, "what the wrapper reads is what the supervisor wrote"


def test_the_checkpoints_folder_is_one_for_all_attempts(spec: Path) -> None:
    made, run = prepared(spec, "checkpoints: {folder: out/ckpt}\n")
    command.make_ready(made, run, run.attempt(1))
    first = command.program(made, run, run.attempt(1), "/entry")
    assert first.environment["TORUSRUN_RESUME"] == ""
    (run.code / "out/ckpt/step-1.pt").write_text("one")
    (run.code / "out/ckpt/step-2.pt.tmp").write_text("torn")
    os.utime(run.checkpoints / "step-1.pt", (1, 1))
    command.make_ready(made, run, run.attempt(2))
    second = command.program(made, run, run.attempt(2), "/entry")
    assert second.environment["TORUSRUN_RESUME"] == str(run.checkpoints / "step-1.pt")
    assert second.environment["TORUSRUN_CHECKPOINTS"] == str(run.checkpoints)


@pytest.mark.parametrize(
    ("image", "left_out"),
    [
        ("images/my.sif", {"my.sif"}),
        ("docker-archive:images/my.tar", {"my.tar"}),
        ("images/newest.sif", {"newest.sif", "my.sif"}),
        ("./images/sandbox", {"etc"}),
    ],
)
def test_the_code_that_a_run_copies_has_not_its_image(spec: Path, image: str, left_out: set[str]) -> None:
    images = spec.parent / "images"
    (images / "sandbox").mkdir(parents=True)
    files = ["my.sif", "my.tar", "mine.yaml", "newest.sif", "etc"]
    for name in ("my.sif", "my.tar", "mine.yaml", "sandbox/etc"):
        (images / name).write_text("")
    (images / "newest.sif").symlink_to("my.sif")
    spec.write_text(f"{RUN}image: {image}\n")
    made = plan(spec)
    assert made.code
    copied = {Path(each.name).name for each in select(made.code, leave_out=no_code(made)).entries}
    assert {*files} - copied == left_out


def test_a_script_learns_how_often_its_job_fails_and_how_it_is_stopped(spec: Path) -> None:
    made, run = prepared(spec, "stop: {signal: SIGUSR1}\n")
    given = command.program(made, run, run.attempt(1), "/").environment
    known = Given.by({**given, "TORUSRUN_ATTEMPT": "1"}, ranks=999)
    assert known.mean_time_to_failure_s == round(made.mean_time_to_failure_s) == 7.9 * 3600 * 1024 / 2
    assert known.stop_signal == signal.SIGUSR1 and known.checkpoints == run.checkpoints


def test_relative_entries_of_pythonpath_are_found_in_the_copy_of_the_code(spec: Path) -> None:
    made, run = prepared(spec, "env: {PYTHONPATH: 'src:/lib'}\n")
    program = command.program(made, run, run.attempt(1), "/entry")
    assert program.environment["PYTHONPATH"] == f"{run.code}/src:/lib:/entry"


def test_a_command_gets_no_package_that_was_sent_to_a_login_node(
    spec: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The command's own Python may have other versions of them."""
    sent, made = tmp_path / archive.name(), plan(spec)
    monkeypatch.setattr(shipped, "ROOT", sent / "torusrun")
    (tmp_path / "link").symlink_to(tmp_path)  # as a home folder may be
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/link/{sent.name}:{sent}/needs/pyyaml:/opt/own")
    program = command.program(made, run := RunFolder(made.folder), run.attempt(1), f"{sent}/torusrun/training/entry")
    assert program.environment["PYTHONPATH"] == f"/opt/own:{sent}/torusrun/training/entry"


@pytest.mark.parametrize(("more", "value"), [("", "1"), ("env: {PYTHONUNBUFFERED: ''}\n", "")])
def test_python_writes_at_once_unless_the_run_says_otherwise(more: str, value: str, spec: Path) -> None:
    made, run = prepared(spec, more)
    assert command.program(made, run, run.attempt(1), "/entry").environment["PYTHONUNBUFFERED"] == value


def test_every_rank_gets_the_environment_of_torchrun() -> None:
    placement = place(Grid((2, 2)), ["n1", "n2"], 2)
    third = {**ranks_environment(placement, 3, "run-1", 2), **master_environment(placement, 3, "10.0.0.1", 29500)}
    assert {name: third[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")} == {
        "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
    }  # fmt: skip
    assert third["GROUP_RANK"] == third["NODE_RANK"] == third["PET_NODE_RANK"] == "1"
    assert third["GROUP_WORLD_SIZE"] == third["PET_NNODES"] == "2"
    assert (third["MASTER_ADDR"], third["MASTER_PORT"]) == ("10.0.0.1", "29500")
    assert third["TORCHELASTIC_RESTART_COUNT"] == "1" and third["TORUSRUN_GRID"] == "2x2"
    of_three_levels = place(Grid((2, 1, 2)), ["n1", "n2"], 2)
    assert ranks_environment(of_three_levels, 2, "x", 2)["TORUSRUN_GRID"] == "2x1x2"


def test_a_checkpoint_is_new_by_its_name_or_bytes_and_not_because_it_was_touched(tmp_path: Path) -> None:
    assert content(tmp_path) == ""
    seen = set()

    def is_new(path: Path, written: str | None = None) -> bool:
        path.parent.mkdir(exist_ok=True)
        path.touch() if written is None else path.write_text(written)
        os.utime(path, (len(seen) + 10, len(seen) + 10))
        before = len(seen)
        seen.add(content(tmp_path))
        return len(seen) > before

    assert is_new(tmp_path / "log.txt", "a") and is_new(tmp_path / "log.txt", "b"), "it may be the only checkpoint"
    assert is_new(tmp_path / "last.pt", "0" * 300_000) and not is_new(tmp_path / "last.pt")
    assert is_new(tmp_path / "last.pt", "0" * 150_000 + "1" + "0" * 149_999)
    assert not is_new(tmp_path / "log.txt", "c") and not is_new(tmp_path / "events.out.tfevents.1700000000.n1", "x")
    assert newest(tmp_path) == tmp_path / "last.pt"
    assert is_new(tmp_path / "step-7" / "model.pt", "w") and is_new(tmp_path / "step-8" / "model.pt", "w")
    (tmp_path / "latest").symlink_to("step-7")
    assert is_new(tmp_path / "step-8" / "model.pt")
