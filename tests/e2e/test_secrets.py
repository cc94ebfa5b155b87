"""Secret variables of real runs: every rank gets them, and one file of the run holds them."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.places import WAITS, Local, started, until
from torusrun.orchestrator.base.errors import DONE, RUN_FAILED
from torusrun.orchestrator.cli.main import main

MANY = 50
AROUND = [*"'\"\\\n\t é\U0001f511%#=;\r", "$HOME", "`id`", "{{x}}", "${y}"]
STEPS = """test $RANK != 0 || echo '{"step": 1, "loss": 0.5}' >> $TORUSRUN_METRICS"""
SHOWS = f"{STEPS}; seen=$SEEN/$TORUSRUN_RUN.$RANK; env -0 > $seen.part; mv $seen.part $seen; {WAITS}"


class Planted:
    """Secrets with hostile contents: half in files, half in the shell of `submit`. `marks` are in no other text."""

    def __init__(self, place: Local, seed: int) -> None:
        chance = random.Random(seed)
        self.marks = {f"SECRET_{i}": f"{chance.getrandbits(128):032x}" for i in range(MANY)}
        self.values = {
            name: "".join(chance.choices(AROUND, k=3)) + mark + "".join(chance.choices(AROUND, k=3)).rstrip("\n") + "."
            for name, mark in self.marks.items()
        }
        self.env: dict[str, Any] = {"SEEN": str(place.folder)}
        (place.folder / "kept").mkdir(mode=0o700)
        for number, (name, value) in enumerate(self.values.items()):
            if number % 2:
                file = place.folder / "kept" / f"{number} of 'é"
                file.write_bytes(f"{value}\n".encode())
                file.chmod(0o600)
                self.env[name] = {"from": str(file)}
            else:
                place.env[name] = value
                self.env[name] = {"from_shell": True}

    def found_in(self, content: bytes) -> list[str]:
        return [name for name, mark in self.marks.items() if mark.encode() in content]

    def files_with_one(self, folder: Path) -> set[str]:
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        return {str(path.relative_to(folder)) for path in files if self.found_in(path.read_bytes())}

    def check_ranks(self, place: Local, run: Path, ranks: int = 4) -> None:
        for rank in range(ranks):
            seen = place.folder / f"{run.name}.{rank}"
            until(seen.exists, f"rank {rank} of {run.name} to show its variables")
            own = dict(word.split("=", 1) for word in seen.read_bytes().decode().split("\0") if "=" in word)
            wrong = [name for name, value in self.values.items() if own.get(name) != value]
            assert not wrong, f"rank {rank} must get the values as they were planted; it has others of {wrong}"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Local, Planted]]:
    place, seed = Local(tmp_path_factory.mktemp("secrets")), random.randrange(2**32)
    print(f"seed {seed}")
    found = Planted(place, seed)
    place.write_script(SHOWS)
    text = (place.folder / "script.yaml").read_text()
    (place.folder / "script.yaml").write_text(f"{text}env: {json.dumps(found.env)}\n")
    yield place, found


def command_lines() -> Iterator[tuple[str, bytes]]:
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                yield folder.name, (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended


def in_this_process(place: Local, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A function that runs a verb as the user of this place, and returns all that it prints."""
    monkeypatch.chdir(place.folder)
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)

    def torusrun(*words: str) -> str:
        text = io.StringIO()
        with redirect_stdout(text), redirect_stderr(text):
            assert main(words) in (DONE, RUN_FAILED), text.getvalue()
        return text.getvalue()

    return torusrun


def shown(run: Path) -> Sequence[Sequence[str]]:
    """The verbs that show a run."""
    return [
        ["plan", "script.yaml"], ["plan", "script.yaml", "--json"], ["submit", "script.yaml", "--dry-run"],
        ["submit", "script.yaml", "--dry-run", "--json"], ["submit", "script.yaml", "--dry-run", "--quiet"],
        ["submit", "script.yaml", "--dry-run", "--sweep", "env.X=1,2"], ["plan", "script.yaml", "--check"],
        ["status", run.name, "--json"], ["status", run.name, "--long"], ["explain", run.name], ["logs", run.name],
        ["logs", run.name, "--all"], ["show", run.name], ["show", run.name, "--json"],
        ["reproduce", run.name, "--compare", run.name], ["gc", "--dry-run"],
    ]  # fmt: skip


def written(run: Path) -> Sequence[Sequence[str]]:
    """The verbs that write what is for others."""
    return [
        ["collect", run.name, "written/copy"], ["report", run.name, "-o", "written/report.html"],
        ["collect", run.name, "written/some", "--only", "./*"],
        ["export", run.name, "written/csv"], ["export", run.name, "written/events", "--as", "tensorboard"],
    ]  # fmt: skip


def test_secrets_are_in_one_private_file_and_in_nothing_that_is_shown(
    planted: tuple[Local, Planted], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, secrets = planted
    run = place._submit("script.yaml")
    secrets.check_ranks(place, run)
    wrong = {pid: names for pid, line in command_lines() if (names := secrets.found_in(line))}
    assert not wrong, f"no command line may have a secret, everybody can read it: {wrong}"
    said = place.torusrun("shell", run.name, "--", "sh", "-c", "env -0")
    assert secrets.found_in(said.stdout.encode()) == [*secrets.values], "a shell beside a rank has its variables"
    place.release(run)
    assert place.watch(run).returncode == 0, place.view(run)
    (place.folder / "written").mkdir()
    torusrun = in_this_process(place, monkeypatch)
    for words in (*shown(run), *written(run)):
        names = secrets.found_in(torusrun(*words).encode())
        assert not names, f"{words} must not show {names}"
    assert secrets.files_with_one(run) == {".secrets.env"}, "one file of the run holds the values"
    assert (run / ".secrets.env").stat().st_mode & 0o777 == 0o600
    made = place.folder / "written"
    kinds = {path.suffix for path in made.rglob("*") if path.is_file()}
    assert {".html", ".csv", ".json", ".yaml", ".sh"} <= kinds, f"only these are searched: {kinds}"
    assert secrets.files_with_one(made) == set(), "what verbs make of a run is for others: it must hold no secret"
    state = place.folder / ".local"
    assert secrets.files_with_one(state) == set(), "the records of torusrun itself must hold no secret"


def test_later_attempts_and_held_allocations_have_the_secrets_of_their_run(planted: tuple[Local, Planted]) -> None:
    """An attempt that a job or a later `resume` begins has no shell to take them from."""
    place, secrets = planted
    text = (place.folder / "script.yaml").read_text()
    (place.folder / "again.yaml").write_text(
        text.replace(WAITS, "test $TORUSRUN_ATTEMPT = 2").replace("name: e2e", "name: again")
    )
    again = place._submit("again.yaml", "--set", "keep_going.attempts=2", "--set", "exit_codes.later=[1]")
    assert place.watch(again).returncode == 0, place.view(again)
    secrets.check_ranks(place, again)
    assert (again / "attempts/2").is_dir() and secrets.files_with_one(again) == {".secrets.env"}
    (place.folder / "hold.yaml").write_text(text.partition("env: ")[0].replace("name: e2e", "name: hold"))
    said = place.succeeds("hold", "hold.yaml", "--time", "30m", "--wait")
    run = place._submit("script.yaml", "--in", said.stdout.split()[0])
    secrets.check_ranks(place, run)
    started(run)
    place.release(run)
    assert place.watch(run).returncode == 0, place.view(run)
    held = run.parent / said.stdout.split()[0]
    place.torusrun("cancel", held.name)
    assert secrets.files_with_one(run) == {".secrets.env"} and not secrets.files_with_one(held)
