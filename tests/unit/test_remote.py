"""Remote runs without ssh: the other side is a process of this machine, and its link breaks wherever a test says."""

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit import far as far_side
from tests.unit.conftest import leads
from tests.unit.far import HERE
from tests.unit.test_remote_verbs import run_file  # noqa: F401
from tests.unit.verbs import Patch
from tests.waiting import until
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.cli import api
from torusrun.orchestrator.remote import archive, boot, call, program, remote_runs, status, store
from torusrun.orchestrator.remote.host import LinkLost, LoginHost
from torusrun.orchestrator.remote.program import FarProgram
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.state.view import View

FOLDER = {"do": "folder"}


def verb(*words: str) -> call.VerbOutput:
    return call.captured(HERE, call.words(*words, buffered=True))


def test_torusrun_is_installed_once_whole_and_of_this_version(bare: Path, monkeypatch: Patch) -> None:
    ended = verb("completion", "bash")
    assert (ended.code, ended.err) == (0, ""), ended.err
    folder = bare / ".local/share/torusrun"
    (own,) = folder.glob("torusrun-*")
    assert own.name == archive.name() and not list(folder.glob(".*"))
    assert (own / "torusrun/templates/job/script.sh.j2").is_file()
    monkeypatch.setattr(archive, "packed", lambda: pytest.fail("it is sent again"))
    assert call.answer(HERE, FOLDER, str) == str(own)


def test_another_version_over_there_is_not_used(bare: Path) -> None:
    older = bare / ".local/share/torusrun/torusrun-0.0.9-0123456789abcdef/torusrun"
    older.mkdir(parents=True)
    (older / "__init__.py").write_text("raise SystemExit('the older one')")
    assert verb("completion", "bash").code == 0


@pytest.mark.needs("users")
@pytest.mark.parametrize("taken", ["", ".local", ".local/share/torusrun", "its own"])
def test_nothing_is_imported_from_a_folder_that_a_stranger_may_have_filled(taken: str, bare: Path) -> None:
    """A folder's name tells what is in it, so everybody can make it where he may write."""
    folder = bare / ".local/share/torusrun" / archive.name()
    (folder / "torusrun").mkdir(parents=True, mode=0o700)
    (folder / "torusrun" / "__init__.py").write_text(f"open({str(bare / 'pwned')!r}, 'w')\n")
    os.chown(folder if taken == "its own" else bare / taken, 4321, 4321)
    with pytest.raises(SiteError, match="belongs to user 4321"):
        call.answer(HERE, FOLDER, str)
    os.chown(folder if taken == "its own" else bare / taken, 0, 0)
    (folder if taken == "its own" else bare / taken).chmod(0o757)
    with pytest.raises(SiteError, match="other users can write to this folder"):
        call.answer(HERE, FOLDER, str)
    assert not (bare / "pwned").exists()


def test_an_archive_that_is_not_whole_is_not_installed(bare: Path, monkeypatch: Patch) -> None:
    sha256 = hashlib.sha256(packed := archive.packed()).hexdigest()
    damaged = {"do": "install", "archive": archive.name(), "bytes": len(packed), "sha256": sha256}
    with (
        FarProgram(HERE, damaged, [packed[:-1], b"x"], call.USUAL) as program,
        pytest.raises(SiteError, match="arrived damaged"),
    ):
        program.begun()
    assert not list((bare / ".local/share/torusrun").glob("*"))


def test_what_is_sent_is_what_torusrun_says_it_needs() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    needed = {line.split(">")[0] for line in tomllib.loads(text)["project"]["dependencies"]}
    names = {name for name, _, _ in boot.PACKAGES}
    assert needed - names == {"fabric"}, "this one works on this side alone"
    files = archive.files()
    for folder in ("torusrun/orchestrator", "torusrun/training", *(f"{boot.NEEDS}/{name}" for name in names)):
        assert any(path.startswith(f"{folder}/") and path.endswith(".py") for path in files), folder
    assert not any(path.endswith((".so", ".pyc")) for path in files)


def test_a_package_is_used_where_the_python_lacks_it_or_has_an_old_one(monkeypatch: Patch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "6.0.1")
    assert not boot.lacks("pyyaml", "yaml", "6.0") and boot.lacks("pyyaml", "yaml", "6.1")
    assert boot.lacks("pyyaml", "no_such_module", "6.0")


def test_code_arrives_as_it_was_frozen_or_is_refused(home: Path, tmp_path: Path) -> None:
    from torusrun.orchestrator.run.code.freeze import freeze

    code = tmp_path / "code"
    (code / "empty").mkdir(parents=True)
    (code / "run me.sh").write_text("#!/bin/sh\n")
    (code / "run me.sh").chmod(0o755)
    (code / "link").symlink_to("run me.sh")
    frozen = freeze(code, tmp_path / "copy")
    packed = store.Packed(tmp_path / "copy")
    content = b"".join(packed)
    assert content == b"".join(packed) and len(content) == packed.size_bytes, "a repeated request sends it again"
    there = home / "there"
    store.unpack(io.BytesIO(content + b"more"), len(content), frozen.checksum, there)
    listed = [[(e.name, e.kind, e.sha256) for e in store.listing(folder)] for folder in (there, tmp_path / "copy")]
    assert listed[0] == listed[1] and os.access(there / "run me.sh", os.X_OK)
    for number, arrived in enumerate((content[: len(content) // 2], content[:20], b"", os.urandom(900))):
        with pytest.raises(SiteError, match="damaged"):
            store.unpack(io.BytesIO(arrived), len(content), frozen.checksum, home / f"cut-{number}")
    with pytest.raises(SiteError, match="damaged"):
        store.unpack(io.BytesIO(content), len(content), "0" * 64, home / "other")


@pytest.mark.parametrize("name", ["../outside", "/outside", "in/../../outside", "link/outside"])
def test_code_that_leads_out_of_its_folder_is_refused(home: Path, name: str) -> None:
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w:gz") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, ".."
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(SiteError, match="not below"):
        store.unpack(io.BytesIO(file.getvalue()), len(file.getvalue()), "0" * 64, home / "there")
    assert not list(home.rglob("outside"))


def run_of(name: str, submitted_s: float = 1000.0, **changes: object) -> Known:
    return Known(name, HERE, "far", submitted_s, **changes)


VIEW = {"run": "a-1", "state": "RUNNING", "reason": "", "attempt": 1, "job": "7", "scheduler": "slurm", "grid": [2, 1],
        "ranks": 2, "hosts": ["n1"], "step": 3, "total_steps": 9, "images_per_s": None, "accuracy": None,
        "folder": "/runs/a-1", "of a later version": 1}  # fmt: skip


def test_an_unreachable_host_makes_its_runs_unknown_with_what_was_known_last(home: Path, monkeypatch: Patch) -> None:
    leads(monkeypatch, lambda command: ["sh", "-c", "echo 'ssh: connect to host nowhere: no route' >&2; exit 255"])
    last = record_of(View, VIEW)
    ended = replace(last, run="b-1", state=State.COMPLETED, reason="all ended well")
    unknown = run_of("a-1", last=last, last_s=2000.0)
    runs = [unknown, run_of("b-1", last=ended, last_s=2000.0), run_of("c-1")]
    running, over, new = status.views(runs)
    assert running.state is State.UNKNOWN and "no route" in running.reason and "it was RUNNING" in running.reason
    assert (running.step, running.folder) == (3, "nobody@nowhere:/runs/a-1")
    assert over.state is State.COMPLETED and new.state is State.UNKNOWN
    (alone,) = status.rows(runs[1:2], named=False).views  # nobody is asked
    assert alone.state is State.COMPLETED


def test_words_find_runs_here_and_there(home: Path) -> None:
    assert remote_runs.find("last") is None and remote_runs.split(["x*"]) == (["x*"], [])
    for name, submitted_s in (("a-1", 1.0), ("a-2", 2.0), ("b-1", 3.0)):
        remote_runs.keep(run_of(name, submitted_s))
    assert [remote_runs.find(word).run for word in ("last", "a-1", "b")] == ["b-1", "a-1", "b-1"]
    assert remote_runs.find("z") is None and remote_runs.find("./a-1") is None
    with pytest.raises(UserError, match="2 runs: a-1, a-2"):
        remote_runs.find("a")
    here, there = remote_runs.split(["a*", "local-1"])
    assert here == ["local-1"] and [run.run for run in there] == ["a-1", "a-2"]
    assert [run.run for run in remote_runs.split([])[1]] == ["a-1", "a-2", "b-1"]
    (remote_runs.place() / "a-1.json").write_text("{")
    assert remote_runs.find("a").run == "a-2", "a damaged record is left out"


def test_the_fixed_command_means_the_same_in_every_shell() -> None:
    command = program._command("~/my env/bin/python")
    assert command.startswith("\"$HOME\"/'my env/bin/python' -u -c '")
    assert not set(command.partition(" -c ")[2].strip("'")) & set("'\"!\n\\$`")


def test_the_words_of_a_shell_are_no_text_for_the_shell_of_the_login_node(far: Path, monkeypatch: Patch) -> None:
    words, commands = ["schema", 'it\'s "so" $HOME `x` !! \n \xe9'], []
    monkeypatch.setattr(process, "interact", lambda argv: commands.append(argv) or 0)
    assert call.interact(HERE, words, terminal=False) == 0
    (argv,) = commands
    assert not set(argv[-1].split()[-1]) & set("'\"$`!\n\\")
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 2 and repr(words[1]) in said.stderr


@pytest.mark.parametrize("lives", [[0, 40], [30, 200], [400, 20, 20]])
def test_a_submission_over_links_that_break_makes_one_run(
    run_file: Path, far: Path, lives: list[int], monkeypatch: Patch  # noqa: F811
) -> None:  # fmt: skip
    left = [1000, *lives]  # the first request is answered: a host that cannot be reached is not tried again
    leads(monkeypatch, lambda command: far_side.argv(command, far, left.pop(0) if left else float("inf")))
    run = api.submit(run_file)
    assert [folder.name for folder in (far / "torusrun/runs").iterdir()] == [run.id]
    assert run.wait(300).state is State.COMPLETED and not left


def test_a_submission_that_is_sent_twice_at_the_same_time_makes_one_run(
    run_file: Path, far: Path, monkeypatch: Patch  # noqa: F811
) -> None:  # fmt: skip
    """As after a link that broke while the first request was still being carried out."""
    requests, captured = [], call.captured

    def twice(host: LoginHost, request: dict, *rest: object) -> call.VerbOutput:
        if request.get("id"):
            other = threading.Thread(target=lambda: requests.append(captured(host, request, *rest)))
            other.start()
            requests.append(captured(host, request, *rest))
            other.join()
        return captured(host, request, *rest)

    monkeypatch.setattr(call, "captured", twice)
    run = api.submit(run_file)
    assert [ended.out.decode().strip() for ended in requests] == [run.id] * 2
    assert [folder.name for folder in (far / "torusrun/runs").iterdir()] == [run.id]


def test_a_host_that_was_never_reached_is_tried_once(run_file: Path, monkeypatch: Patch) -> None:  # noqa: F811
    tries = []
    monkeypatch.setattr(call, "reached", set())
    silence = "echo ssh: connect to host nowhere port 22: Connection refused >&2; exit 255"
    leads(monkeypatch, lambda command: tries.append(command) or ["sh", "-c", silence])
    with pytest.raises(LinkLost):
        api.submit(run_file)
    assert len(tries) == 1 and not remote_runs.runs()


def test_a_verb_that_reports_ends_with_its_link(far: Path, run_file: Path, monkeypatch: Patch) -> None:  # noqa: F811
    (run_file.parent / "program.sh").write_text("echo begun; exec sleep 600\n")
    run = api.submit(run_file)
    began, programs = threading.Event(), []
    converse = process.converse
    monkeypatch.setattr(process, "converse", lambda argv: programs.append(converse(argv)) or programs[-1])

    def follow() -> None:
        call.call(HERE, call.words("logs", run.id, "--follow"), lambda data: began.set(), lambda data: None)

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        until(began.is_set, "the first line of the program")
        (there,) = programs
        there.stdin.close()  # as a link that broke does
        until(lambda: there.poll() is not None, "the verb to end")
    finally:
        run.cancel()
        for program in programs:
            program.send_signal(signal.SIGKILL)
        reader.join()


def test_the_site_of_the_page_is_read(tmp_path: Path, home: Path) -> None:
    from torusrun.orchestrator.keys.load import load_site
    from torusrun.orchestrator.remote.host import of

    page = (Path(__file__).parents[2] / "docs" / "guides" / "remote.md").read_text()
    (tmp_path / "site.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert of(load_site(str(tmp_path / "site.yaml"))) == LoginHost("me@login.example", None, "~/venv/bin/python")


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "me@", "a;b", "$(x)", ""])
def test_what_is_no_host_is_refused_by_the_reader(tmp_path: Path, home: Path, host: str) -> None:
    from torusrun.orchestrator.keys.load import load_site

    (tmp_path / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\nhost: {json.dumps(host)}\n")
    with pytest.raises(UserError, match="site.yaml:3"):
        load_site(str(tmp_path / "site.yaml"))
