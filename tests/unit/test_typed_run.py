"""A run without a file, whose options are read as a file is and saved as one; the examples."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.keys.read import read, read_tree
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.typed_run import Option, TypedRun
from torusrun.orchestrator.run.plan.plan import plan

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
SLURM = ["--site", "slurm", "-n", "2", "--gpus", "4", "--time", "02:00:00", "--env", "LR=0x10"]
RUN_ID = r"train-\d{8}-\d{6}-[0-9a-f]{4}"
COMMAND = ["--", "python", "train.py", "--lr", "0.1", "", "null", "a: b"]


@pytest.fixture
def folder(home: Path, monkeypatch: Patch) -> Path:
    """A working directory with a program."""
    place = home / "code"
    place.mkdir()
    (place / "train.py").touch()
    monkeypatch.chdir(place)
    return place


@example(("\x85", "a\u2028b"))
@given(st.lists(words, min_size=1, max_size=4).map(tuple))
def test_any_command_is_read_as_from_the_file_that_it_makes(command: tuple[str, ...]) -> None:
    options = [Option(("name",), "x", "--name x"), Option(("site",), "local", "--site local")]
    typed = TypedRun((*options, Option(("command",), command, "--")), Path())
    there, _ = read(RunSpec, typed.text(), "file")
    here, _ = read_tree(RunSpec, typed.tree(), "options")
    assert there == here and here.command == command


@pytest.mark.parametrize("value", ["", "~", "null", "010"])
def test_the_value_of_a_variable_is_text_as_in_a_shell(value: str, folder: Path) -> None:
    assert main(["run", "--env", f"CUDA_VISIBLE_DEVICES={value}", "--save", "run.yaml", *COMMAND]) == 0
    assert plan("run.yaml").run.env == {"CUDA_VISIBLE_DEVICES": value}


@pytest.mark.parametrize(("command", "name"), [("python -c key=s3cret", "python"), ("bash -c s3cret train.py", "bash")])
def test_the_name_of_a_run_has_no_code(command: str, name: str, folder: Path) -> None:
    assert main(["run", "--save", "run.yaml", "--", *command.split()]) == 0
    assert plan("run.yaml").run.name == name


@pytest.mark.parametrize("place", [".", "..", "other"])
def test_a_saved_file_has_the_same_run(place: str, folder: Path, capsys: Capsys) -> None:
    (folder / "other").mkdir()
    (folder / "site.yaml").write_text("scheduler: slurm\nlauncher: srun\nnode: {gpus: 4}\n")
    typed = ["run", *SLURM, "--site", "./site.yaml", "--set", "keep_going.attempts=3"]
    assert main([*typed, "--save", f"{place}/run.yaml", *COMMAND]) == 0
    script = prints(capsys, *typed, "--dry-run", "--quiet", *COMMAND).partition("\n")[2]
    saved = plan(f"{place}/run.yaml")
    assert (saved.run.nodes, saved.ranks_per_node, saved.run.time_s, saved.jobs) == (2, 4, 7200.0, 3)
    assert saved.run.command == tuple(COMMAND[1:]) and saved.run.env == {"LR": "0x10"} and saved.code == folder
    assert main(["submit", f"{place}/run.yaml", "--dry-run", "--quiet"]) == 0

    again = capsys.readouterr().out
    assert re.sub(RUN_ID, "RUN", script) == re.sub(RUN_ID, "RUN", again)
    assert main([*typed, "--save", f"{place}/run.yaml", *COMMAND]) == 2, "a file of the user is never overwritten"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time", "2x"], "--time 2x: 'time': '2x' is not a duration"),
        (["-n", "many"], "--nodes many: 'nodes' must be a whole number"),
        (["-n", "2"], "--nodes 2: 'nodes' must be 1 on a local site"),
        (["--ranks-per-node", "0"], "--ranks-per-node 0: 'ranks_per_node' must be"),
        (["--gpus", "4"], "--gpus 4: a node of the site 'local' has no GPUs"),
        (["--site", "nowhere"], "--site nowhere: there is no site 'nowhere'"),
        (["--name", "a b"], "--name a b: 'name': 'a b' is not a name"),
        (["--env", "LR"], "--env LR: write it as NAME=VALUE"),
        (["--env", "BASH_ENV=s3cret"], "--env BASH_ENV=...: "),
        (["--set", "noodes=2"], "--set noodes=2: unknown key 'noodes'; did you mean 'nodes'?"),
        (["--set", "train.epochs=2"], "'train' and 'command' exclude each other"),
        (["--save", "x.yaml", "--wait"], "--save submits nothing"),
    ],
)
def test_a_mistake_names_its_option(options: list[str], message: str, folder: Path, capsys: Capsys) -> None:
    said = refuses(capsys, "run", *options, "--", "python", "train.py")
    assert message in said and "s3cret" not in said, said
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"], "a mistake must write nothing"


def test_a_missing_command(folder: Path, capsys: Capsys) -> None:
    assert "write the command after '--'" in refuses(capsys, "run", "python", "train.py", "--lr", "0.1")
    assert "`torusrun submit run.yaml`" in refuses(capsys, "run", "run.yaml")


@pytest.mark.parametrize(
    ("command", "name"),
    [(["python", "-u", "my train.py"], "my-train"), (["./7b.sh"], "b"), (["mpi_ring"], "mpi_ring"), (["/"], "run")],
)
def test_a_run_has_the_name_of_its_program(command: list[str], name: str) -> None:
    from torusrun.orchestrator.cli.verbs.run import _name

    assert _name(command) == name


def test_a_plan_without_a_file_is_submitted_by_python(folder: Path) -> None:
    values = {"name": "x", "site": "local", "command": ("true",)}
    planned = plan(TypedRun(tuple(Option((key,), value, f"--{key}") for key, value in values.items()), Path()))
    assert planned.code == folder and json.dumps(planned.as_json())
    assert not [source for source in planned.sources if not Path(source).exists()], "its copies could not be private"


@pytest.mark.parametrize("verb", ["submit", "plan"])
def test_a_run_file_takes_the_options_of_a_run_without_a_file(verb: str, folder: Path, capsys: Capsys) -> None:
    (folder / "runs").mkdir()
    file = folder / "runs" / "run.yaml"
    file.write_text("name: mine\nsite: local\ncommand: [python, train.py]\nenv: {LR: '1'}\n")
    options = ["--site=slurm-v100", "-N3", "--gpus=2", "--time=2h", "--set=name=e3", "--set=env.LR=2", "--set=code=.."]
    shows = {"submit": ["--dry-run", "--quiet"], "plan": ["--json"]}[verb]
    assert main([verb, str(file), *options, *shows]) == 0
    if verb == "plan":
        spec = json.loads(capsys.readouterr().out)["spec"]
        assert (spec["name"], spec["nodes"], spec["ranks_per_node"], spec["time"]) == ("e3", 3, 2, "7200.000000s")
        assert spec["env"] == {"LR": "2"}
    assert "--nodes x: 'nodes' must be a whole number, not 'x'" in refuses(capsys, verb, str(file), "--nodes", "x")


def test_the_last_of_an_option_and_a_setting_wins(folder: Path, capsys: Capsys) -> None:
    common = ["run", "--dry-run", "--quiet", "--site", "slurm"]
    assert "--nodes=3" in prints(capsys, *common, "--nodes", "2", "--set", "nodes=3", *COMMAND)
    assert "--nodes=2" in prints(capsys, *common, "--set", "nodes=3", "--nodes", "2", *COMMAND)


# The examples that ship with torusrun: listed, printed, and saved as a start, without overwriting anything.


ROOT = Path(__file__).resolve().parents[2]


def test_the_list_names_each_run_file_and_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row["about"] for row in json.loads(prints(capsys, "examples", "--json"))["examples"]}
    runs = [path for path in (ROOT / "examples").rglob("*.yaml") if path.name != "site.yaml"]
    assert set(found) == {str(path.relative_to(ROOT / "examples").with_suffix("")) for path in runs}
    assert all(found.values()), "begin the file with a comment that says what it does"
    assert found["programs/ddp"] == "runs python ddp.py"


def test_an_example_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    assert prints(capsys, "examples", "digits") == (ROOT / "examples/digits.yaml").read_text()


def test_a_saved_example_is_a_run_with_its_program(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ddp.py in its folder" in prints(capsys, "examples", "programs/ddp", "--save", str(home / "mine.yaml"))
    assert plan(home / "mine.yaml").run.command == ("python", "ddp.py") and (home / "ddp.py").is_file()


@pytest.mark.parametrize("there", ["mine.yaml", "ddp.py"])
def test_no_file_is_overwritten(there: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / there).write_text("mine")
    assert main(["examples", "programs/ddp", "--save", str(home / "mine.yaml")]) == 2
    assert f"{home / there} exists already" in capsys.readouterr().err
    assert (home / there).read_text() == "mine" and len(list(home.glob("*.*"))) == 1, "nothing else may be written"


def test_an_installed_package_has_every_shipped_folder() -> None:
    code = "".join(path.read_text() for path in (ROOT / "orchestrator").rglob("*.py"))
    used = set(re.findall(r'shipped\("(\w+)"\)', code))
    included = re.findall(r'^"(\w+)" = "torusrun/\1"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert used and used == set(included) - {"orchestrator", "training"}, "add the folder to pyproject.toml"


# The Python examples are valid for every supported Python and do not import torusrun.


THREADS = """
import os, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
    print("ended with", end.code, *(name for name in names if "gloo" in name))
"""

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "programs"
OURS = {"orchestrator", "training", "torusrun"}


def test_the_python_programs_are_valid_and_import_nothing_of_ours() -> None:
    imported: dict[str, set[str]] = {}
    for path in PROGRAMS.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(), feature_version=(3, 10))))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        imported[path.name] = {name.partition(".")[0] for name in names}
    assert imported and all(imported.values())
    assert not {program: names & OURS for program, names in imported.items() if names & OURS}


@pytest.mark.parametrize("program", ["programs/ddp.py", "checkpoints/saved_ddp.py"])
def test_no_thread_of_the_group_is_left_when_ddp_ends(program: str, tmp_path: Path) -> None:
    """A thread that needs Python while it ends aborts the process."""
    for package in ("torch", "sklearn"):
        pytest.importorskip(package)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "GLOO_SOCKET_IFNAME": "lo"}
    meeting |= {"RANK": "0", "WORLD_SIZE": "1"}
    command = [sys.executable, "-c", THREADS, str(PROGRAMS.parent / program), "--steps", "2"]
    own = {**os.environ, **meeting}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=own)
    assert done.stdout.splitlines()[-1:] == ["ended with 0"], f"{done.returncode} {done.stdout}{done.stderr}"
