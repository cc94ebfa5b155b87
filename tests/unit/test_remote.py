"""Remote runs without ssh: the other side is a process of this machine, and its link breaks wherever a test says."""

import base64
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.e2e.places import until
from tests.unit.far import HERE, Pipe
from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.remote import archive, asking, remote_runs, session, status
from torusrun.orchestrator.remote.links import connecting
from torusrun.orchestrator.remote.links.frames import Unpacker, packed
from torusrun.orchestrator.remote.links.host import LinkLost, LoginHost
from torusrun.orchestrator.remote.links.openssh import OpenSSH
from torusrun.orchestrator.remote.login_node import boot, calls, sent_files, store
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session
from torusrun.orchestrator.run.state.view import View


def breaking(monkeypatch: pytest.MonkeyPatch, far: Path, lives: list[float]) -> None:
    """Links that live so long, one after the other; the last one for ever."""
    left = [*lives, float("inf")]
    monkeypatch.setattr(session, "connect", lambda host, command, **how: Pipe(command, far, left.pop(0)))


def said(link_: Session, *argv: str, name: str = "call") -> tuple[int, bytes, bytes]:
    out, err = bytearray(), bytearray()
    return asking.call(link_, {"argv": argv}, out.extend, err.extend, name), bytes(out), bytes(err)


@given(st.lists(st.tuples(st.dictionaries(st.text(), st.text()), st.binary()), max_size=5), st.integers(1, 50))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent_: list, size: int) -> None:
    stream = io.BytesIO(b"Welcome!\nMARK" + b"".join(packed({"h": header}, data) for header, data in sent_))
    unpacker = Unpacker(lambda: stream.read(size))
    unpacker.until(b"MARK", 100)
    assert [((frame := unpacker.frame())[0]["h"], frame[1]) for _ in sent_] == sent_


def test_no_end_of_what_a_shell_prints_is_waited_for() -> None:
    with pytest.raises(ValueError, match="noise"):
        Unpacker(lambda: b"noise\n").until(b"MARK", 100)
    with pytest.raises(ValueError):
        Unpacker(lambda: b'{"bytes": -1}\n').frame()


def test_torusrun_is_installed_once_whole_and_of_this_version(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(HERE, 0) as first:
        code, out, err = said(first, "torusrun.orchestrator", "examples")
    assert (code, err) == (0, b""), err
    folder = bare / ".local/share/torusrun"
    (own,) = folder.glob("torusrun-*")
    assert own.name == archive.name() and not list(folder.glob(".*"))
    assert (own / "torusrun/templates/job/script.sh.j2").is_file()
    monkeypatch.setattr(archive, "packed", lambda: pytest.fail("it is sent again"))
    Session(HERE, 0).close()


def test_another_version_over_there_is_not_used(bare: Path) -> None:
    older = bare / ".local/share/torusrun/torusrun-0.0.9-0123456789abcdef/torusrun"
    older.mkdir(parents=True)
    (older / "__init__.py").write_text("raise SystemExit('the older one')")
    with Session(HERE, 0) as there:
        assert said(there, "torusrun.orchestrator", "examples")[0] == 0


@pytest.mark.needs("users")
@pytest.mark.parametrize("taken", ["", ".local", ".local/share/torusrun", "its own"])
def test_nothing_is_imported_from_a_folder_that_a_stranger_may_have_filled(taken: str, bare: Path) -> None:
    """A folder's name tells what is in it, so everybody can make it where he may write."""
    folder = bare / ".local/share/torusrun" / archive.name()
    (folder / "torusrun").mkdir(parents=True, mode=0o700)
    (folder / "torusrun" / "__init__.py").write_text(f"open({str(bare / 'pwned')!r}, 'w')\n")
    os.chown(folder if taken == "its own" else bare / taken, 4321, 4321)
    with pytest.raises(SiteError, match="belongs to user 4321"):
        Session(HERE, 0)
    os.chown(folder if taken == "its own" else bare / taken, 0, 0)
    (folder if taken == "its own" else bare / taken).chmod(0o757)
    with pytest.raises(SiteError, match="other users can write to this folder"):
        Session(HERE, 0)
    assert not (bare / "pwned").exists()


def test_an_archive_that_is_not_whole_is_not_installed(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = lambda header, payload=b"": packed(header, payload[:-1] + b"x" if payload else b"")  # noqa: E731
    monkeypatch.setattr(session.frames, "packed", damaged)
    with pytest.raises(SiteError, match="arrived damaged"):
        Session(HERE, 0)
    assert not list((bare / ".local/share/torusrun").glob("*"))


def test_what_is_sent_is_what_torusrun_says_it_needs() -> None:
    import tomllib

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    needed = {line.split(">")[0] for line in tomllib.loads(text)["project"]["dependencies"]}
    names = {name for name, _, _ in boot.PACKAGES}
    assert needed - names == {"rich", "fabric"}, "these two work on this side alone"
    files = archive.files()
    for folder in ("torusrun/orchestrator", "torusrun/training", *(f"{boot.NEEDS}/{name}" for name in names)):
        assert any(path.startswith(f"{folder}/") and path.endswith(".py") for path in files), folder
    assert not any(path.endswith((".so", ".pyc")) for path in files)


def test_a_package_is_used_where_the_python_lacks_it_or_has_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "6.0.1")
    assert not boot.lacks("pyyaml", "yaml", "6.0") and boot.lacks("pyyaml", "yaml", "6.1")
    assert boot.lacks("pyyaml", "no_such_module", "6.0")


@pytest.mark.parametrize("lives", [[1500.0, 1.0, 1300.0], [1000.0, 2000.0, 3000.0]])
def test_what_a_call_writes_comes_once_and_in_order_over_links_that_break(
    far: Path, monkeypatch: pytest.MonkeyPatch, lives: list[float]
) -> None:
    (far / "counts.py").write_text("import time\nfor i in range(400): print('line', i, flush=True); time.sleep(0.002)")
    breaking(monkeypatch, far, lives)
    with Session(HERE, 60, say=lambda text: None) as there:
        code, out, _ = said(there, "counts")
    assert code == 0 and out.decode().splitlines() == [f"line {number}" for number in range(400)]


def test_a_call_of_one_name_is_made_once(far: Path) -> None:
    (far / "once.py").write_text("open('made', 'a').write('x')")
    with Session(HERE, 0) as there:
        for _ in range(3):
            assert said(there, "once", name="same")[0] == 0
        assert (far / "made").read_text() == "x"
        there.ask({"ask": "forget", "call": "same"})
    assert not list((far / ".local/state/torusrun/calls").iterdir())


@pytest.mark.parametrize(
    ("program", "code", "last"),
    [("print('x')", 0, b""), ("raise SystemExit(7)", 7, b""), ("raise SystemExit('why')", 1, b"why"),
     ("1 / 0", 1, b"ZeroDivisionError: division by zero")],
)  # fmt: skip
def test_a_call_ends_as_its_program_does(far: Path, program: str, code: int, last: bytes) -> None:
    (far / "program.py").write_text(program)
    with Session(HERE, 0) as there:
        found, _, err = said(there, "program")
    assert found == code and err.strip().endswith(last) and bool(last) == bool(err)


def test_a_call_that_was_killed_is_gone(far: Path) -> None:
    (far / "killed.py").write_text("import os, signal; print('begun'); os.kill(os.getpid(), signal.SIGKILL)")
    with Session(HERE, 0) as there, pytest.raises(asking.Gone, match="is gone"):
        said(there, "killed")


@pytest.mark.parametrize("how", ["stop", "forget"])
def test_a_call_and_what_it_started_ends_when_that_is_asked_for(how: str, far: Path) -> None:
    text = "import subprocess; program = subprocess.Popen(['sleep', '600']); print(program.pid); program.wait()"
    (far / "sleeps.py").write_text(text)
    out = bytearray()

    def asks() -> Iterator[float]:
        while not out.endswith(b"\n"):
            yield 0.1
        there.ask({"ask": how, "call": "call"})
        yield from repeat(0.1)

    with Session(HERE, 0) as there, suppress(asking.Gone):
        asking.call(there, {"argv": ["sleeps"]}, out.extend, lambda data: None, "call", asks())
    until(lambda: not Path(f"/proc/{int(out)}").exists(), "the program to end")


def test_no_name_of_a_call_leaves_its_folder(far: Path) -> None:
    with Session(HERE, 0) as there:
        for name in ("../x", "", ".hidden", "a/b", "x" * 300):
            with pytest.raises(SiteError, match="is not the name of a call"):
                there.ask({"ask": "start", "call": name})


def test_calls_are_removed_after_days_whatever_is_missing_in_one(home: Path) -> None:
    private.make(calls.place())
    for name in ("a", "b", "c"):
        (calls.place() / name).mkdir()
        if name != "a":
            (calls.place() / name / "read").touch()
            os.utime(calls.place() / name / "read", (0, 0))
        os.utime(calls.place() / name, (0, 0))
    (calls.place() / "now").mkdir()
    calls.clean()
    assert [folder.name for folder in calls.place().iterdir()] == ["now"]


def test_a_call_that_cannot_be_started_leaves_no_request(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.sys, "executable", str(home / "none"))
    with pytest.raises((OSError, SiteError)):
        calls.start("call", b"a secret")
    assert not list(calls.place().iterdir())


def test_a_call_is_not_gone_because_the_clock_of_its_files_is_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private.make(calls.place())
    folder = calls.folder_of("call")
    folder.mkdir()
    for name in ("request.json", "read"):
        (folder / name).touch()
    now_s = time.time()
    monkeypatch.setattr(calls.time, "time", lambda: now_s + 10 * calls.BEGINS_S)
    assert not calls._gone(folder)
    os.utime(folder / "request.json", (0, 0))
    assert calls._gone(folder), "it must be gone if its process has not begun for long by that clock"


def test_a_file_is_kept_only_with_its_checksum(home: Path) -> None:
    content = os.urandom(1000)
    sha256 = hashlib.sha256(content).hexdigest()
    store.keep(sha256, 0, False, content[:600])
    assert store.missing([sha256]) == [sha256]
    store.keep(sha256, 0, False, content[:600])  # asked again
    store.keep(sha256, 0, False, content[:100])  # another submission sends the same file
    store.keep(sha256, 600, True, content[600:])
    assert store.missing([sha256]) == [] and store.path_of(sha256).read_bytes() == content
    with pytest.raises(SiteError, match="damaged"):
        store.keep("0" * 64, 0, True, b"other")
    with pytest.raises(SiteError):
        store.path_of("../../x")


def test_code_is_assembled_as_it_was_frozen_or_refused(home: Path, tmp_path: Path) -> None:
    from torusrun.orchestrator.run.code.freeze import freeze

    code = tmp_path / "code"
    (code / "empty").mkdir(parents=True)
    (code / "run me.sh").write_text("#!/bin/sh\n")
    (code / "run me.sh").chmod(0o755)
    (code / "link").symlink_to("run me.sh")
    frozen = freeze(code, tmp_path / "copy")
    entries = sent_files.listing(tmp_path / "copy")
    for entry in entries:
        if entry.kind == "file":
            store.keep(entry.sha256, 0, True, (tmp_path / "copy" / entry.name).read_bytes())
    sent = {"sha256": frozen.checksum, "entries": [asdict(entry) for entry in entries]}
    made = sent_files.assemble(sent, home / "there")
    assert [(e.name, e.kind, e.sha256) for e in sent_files.listing(made)] == [
        (e.name, e.kind, e.sha256) for e in entries
    ]
    assert os.access(made / "run me.sh", os.X_OK)
    with pytest.raises(SiteError, match="damaged"):
        sent_files.assemble({**sent, "entries": sent["entries"][:-1]}, home / "there")
    outside = {"name": "../outside", "kind": "folder", "mode": 0o700}
    with pytest.raises(SiteError, match="not below"):
        sent_files.assemble({**sent, "entries": [outside]}, home / "there")


def run_of(name: str, submitted_s: float = 1000.0, **changes: object) -> Known:
    return Known(name, HERE, "far", submitted_s, **changes)


VIEW = {"run": "a-1", "state": "RUNNING", "reason": "", "attempt": 1, "job": "7", "scheduler": "slurm", "grid": [2, 1],
        "ranks": 2, "hosts": ["n1"], "step": 3, "total_steps": 9, "images_per_s": None, "accuracy": None,
        "folder": "/runs/a-1", "of a later version": 1}  # fmt: skip


def test_an_unreachable_host_makes_its_runs_unknown_with_what_was_known_last(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LinkLost("nobody@nowhere cannot be reached: no route")

    monkeypatch.setattr(session, "connect", fail)
    last = record_of(View, VIEW)
    ended = replace(last, run="b-1", state=State.COMPLETED, reason="all ended well")
    runs = [
        run_of("a-1", last=last, last_s=2000.0),
        run_of("b-1", last=ended, last_s=2000.0),
        run_of("c-1"),
    ]
    running, over, new = status.views(runs)
    assert running.state is State.UNKNOWN and "no route" in running.reason and "it was RUNNING" in running.reason
    assert (running.step, running.folder) == (3, "nobody@nowhere:/runs/a-1")
    assert over.state is State.COMPLETED and new.state is State.UNKNOWN
    (alone,) = status.views(runs[1:2], named=False)  # nobody is asked
    assert alone.state is State.COMPLETED


def test_words_find_runs_here_and_there(home: Path) -> None:
    assert remote_runs.find("last") is None and remote_runs.split(["x*"]) == (["x*"], [])
    for name, submitted_s in (("a-1", 1.0), ("a-2", 2.0), ("b-1", 3.0)):
        remote_runs.keep(run_of(name, submitted_s))
    assert (
        remote_runs.find("last").run == "b-1"
        and remote_runs.find("a-1").run == "a-1"
        and remote_runs.find("b").run == "b-1"
    )
    assert remote_runs.find("z") is None and remote_runs.find("./a-1") is None
    with pytest.raises(UserError, match="2 runs: a-1, a-2"):
        remote_runs.find("a")
    here, there = remote_runs.split(["a*", "local-1"])
    assert here == ["local-1"] and [run.run for run in there] == ["a-1", "a-2"]
    assert [run.run for run in remote_runs.split([])[1]] == ["a-1", "a-2", "b-1"]
    (remote_runs.place() / "a-1.json").write_text("{")
    assert remote_runs.find("a").run == "a-2", "a damaged record is left out"


def test_the_fixed_command_means_the_same_in_every_shell() -> None:
    command = session._command("~/my env/bin/python")
    assert command.startswith("\"$HOME\"/'my env/bin/python' -u -c '")
    assert not set(command.partition(" -c ")[2].strip("'")) & set("'\"!\n\\$`")


def test_the_words_of_a_shell_are_no_text_for_the_shell_of_the_login_node(far: Path) -> None:
    words = ["schema", 'it\'s "so" $HOME `x` !! \n é']
    with Session(HERE, 0) as there:
        answer, _ = there.ask({"ask": "command", "words": words})
    *_, word = shlex.split(answer["command"])
    assert re.fullmatch("[A-Za-z0-9_=-]+", word) and json.loads(base64.urlsafe_b64decode(word)) == words
    said = subprocess.run(["sh", "-c", answer["command"]], capture_output=True, text=True, check=False)
    assert said.returncode == 2 and repr(words[1]) in said.stderr


def test_ssh_is_used_where_its_configuration_shares_connections(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "ssh"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    for path, wanted in (("/home/me/.ssh/%C", "openssh"), ("none", "fabric")):
        program.write_text(f"#!/bin/sh\necho host far\necho controlpath {path}\n")
        program.chmod(0o755)
        assert connecting._fitting(HERE) == wanted


def test_long_messages_of_ssh_do_not_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text(
        "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' . >&2\necho last words >&2\necho ready\ncat\nexit 255\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    link = OpenSSH(LoginHost("far"), "true")
    assert link.receive() == b"ready\n", "its messages must be read while its answer is awaited"
    link._in.close()
    with pytest.raises(LinkLost, match="last words"):
        link.receive()
    link._program.wait()


def test_status_without_remote_runs_imports_no_ssh(home: Path) -> None:
    probe = "import sys; from torusrun.orchestrator.cli.main import main; main(['status']); "
    probe += "print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", f"import json; {probe}"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    assert not {"fabric", "paramiko", "torusrun.orchestrator.remote.session"} & set(json.loads(out))


def test_the_site_of_the_page_is_read(tmp_path: Path, home: Path) -> None:
    from torusrun.orchestrator.keys.load import load_site
    from torusrun.orchestrator.remote.links.host import of

    page = (Path(__file__).parents[2] / "docs" / "guides" / "remote.md").read_text()
    (tmp_path / "site.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert of(load_site(str(tmp_path / "site.yaml"))) == LoginHost("me@login.example", None, "~/venv/bin/python")


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "me@", "a;b", "$(x)", ""])
def test_what_is_no_host_is_refused_by_the_reader(tmp_path: Path, home: Path, host: str) -> None:
    from torusrun.orchestrator.keys.load import load_site

    (tmp_path / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\nhost: {json.dumps(host)}\n")
    with pytest.raises(UserError, match="site.yaml:3"):
        load_site(str(tmp_path / "site.yaml"))
