"""A run's copy of the code: what git does not ignore, or the whole folder, within a limit, and the same bytes."""

import os
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import machine
from tests.unit.verbs import Patch
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.run.code import freeze as copying
from torusrun.orchestrator.run.code.freeze import checksum_of, freeze
from torusrun.orchestrator.run.code.select import select


def git(folder: Path, *words: str) -> None:
    name = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", folder, *name, *words], check=True, capture_output=True, timeout=240)


def content(folder: Path) -> dict[str, str]:
    """Every file and link below a folder; a link's content is '-> ' and its target."""
    return {
        str(path.relative_to(folder)): f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    """A checkout with a changed, a deleted, an untracked and an ignored file."""
    folder = write(tmp_path / "project", **{"train.py": "1", "gone.py": "", "lib/a.py": "a", ".gitignore": "data/\n"})
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "gone.py").unlink()
    write(folder, **{"train.py": "2", "new.py": "n", "data/big": "x" * 1000, "lib/__pycache__/a.pyc": "", "b.pyc": ""})
    return folder


def test_the_work_tree_as_it_is_now_without_what_git_ignores(project: Path, tmp_path: Path) -> None:
    process.CALLS.clear()
    found = freeze(project, tmp_path / "code")
    assert content(tmp_path / "code") == {".gitignore": "data/\n", "lib/a.py": "a", "new.py": "n", "train.py": "2"}
    assert process.CALLS["git"] == 5
    assert found.files == 4 and found.size_bytes == 9 and found.notes == ()
    assert found.checkout and found.checkout.dirty and len(found.checkout.commit) == 40
    assert "+2" in found.checkout.diff and found.record()["commit"] == found.checkout.commit


def test_a_folder_of_a_checkout_is_the_code_where_it_is_named(project: Path, tmp_path: Path) -> None:
    freeze(project / "lib", tmp_path / "code")
    assert content(tmp_path / "code") == {"a.py": "a"}


def test_an_ignored_folder_is_copied_as_one_without_git(project: Path, tmp_path: Path) -> None:
    found = freeze(project / "data", tmp_path / "code")
    assert list(content(tmp_path / "code")) == ["big"]
    assert found.checkout is None and "git ignores this folder" in found.notes[0]


def test_before_the_first_commit_git_still_selects_the_files(home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "new", **{"a": "", "b": "", ".gitignore": "b\n"})
    git(folder, "init", "-q")
    assert freeze(folder, tmp_path / "code").checkout is None
    assert set(content(tmp_path / "code")) == {"a", ".gitignore"}


def test_a_submodule_is_copied_by_its_own_rules(project: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", **{"m.py": "m", ".gitignore": "*.log\n"})
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "first")
    git(project, "submodule", "add", "-q", str(other), "sub")
    write(project, **{"sub/run.log": "noise", "sub/n.py": "n"})
    freeze(project, tmp_path / "code")
    inside = {name for name in content(tmp_path / "code") if name.startswith("sub/")}
    assert inside == {"sub/m.py", "sub/n.py", "sub/.gitignore"}


def test_a_folder_that_became_a_link_is_a_link(project: Path, tmp_path: Path) -> None:
    elsewhere = (project / "lib").rename(tmp_path / "elsewhere")
    (project / "lib").symlink_to(elsewhere)
    found = freeze(project, tmp_path / "code")
    assert content(tmp_path / "code")["lib"] == f"-> {elsewhere}"
    assert any("lib: a link to" in note for note in found.notes)


def test_a_folder_without_git_is_copied_without_environments_and_caches(home: Path, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "plain",
        **{"a.py": "a", "sub/b.py": "b", "sub/__pycache__/b.pyc": "", "venv/pyvenv.cfg": "", "venv/bin/x": ""},
        **{"runs/r-1/ledger.jsonl": "", "runs/r-1/attempts/1/job.sh": "", "runs/notes": "", "c.pyc": ""},
    )
    (folder / "empty").mkdir()
    into = tmp_path / "runs" / ".r-2" / "code"
    into.parent.mkdir(parents=True)
    process.CALLS.clear()
    write(into.parent, **{"plan.json": "{}"})
    found = freeze(folder, into)
    assert content(into) == {"a.py": "a", "runs/notes": "", "sub/b.py": "b"}
    assert (into / "empty").is_dir() and found.files == 3 and found.checkout is None
    assert process.CALLS["git"] == 0


def test_where_git_is_missing_the_folder_is_copied(project: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = freeze(project, tmp_path / "code")
    assert "git: not found" in found.notes[0] and found.checkout is None
    assert set(content(tmp_path / "code")) == {".gitignore", "train.py", "new.py", "data/big", "lib/a.py"}


@pytest.mark.needs("users")
def test_another_users_checkout_is_copied_and_git_is_not_run(project: Path, tmp_path: Path) -> None:
    os.chown(project / ".git", 4321, 4321)
    process.CALLS.clear()
    found = freeze(project, tmp_path / "code")
    assert "another user" in found.notes[0] and process.CALLS["git"] == 0


def test_links_that_leave_the_copy_are_reported(home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "linked", **{"lib/a.py": "a"})
    outside = write(tmp_path / "outside", data="d")
    for name, target in {
        "short": "lib/a.py",
        "absolute": f"{folder}/lib",
        "lib/up": "../lib/a.py",
        "chain": "short",
        "out": "../outside/data",
        "nowhere": "missing",
        "circle": "circle",
    }.items():
        (folder / name).symlink_to(target)
    found = freeze(folder, tmp_path / "code")
    assert content(tmp_path / "code") == {
        "lib/a.py": "a", "short": "-> lib/a.py", "absolute": "-> lib", "lib/up": "-> a.py", "chain": "-> lib/a.py",
        "out": f"-> {outside}/data",
    }  # fmt: skip
    assert [note.partition(":")[0] for note in found.notes] == ["circle", "nowhere", "out"]


def test_pipes_and_sockets_are_left_out_and_reported(home: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    folder = write(tmp_path / "odd", a="a")
    os.mkfifo(folder / "fifo")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        found = freeze(folder, tmp_path / "code")
    assert [*content(tmp_path / "code")] == ["a"] and len(found.notes) == 2


@pytest.mark.parametrize(
    ("umask", "modes"),
    [
        (0o077, {"sub": 0o700, "run.sh": 0o700, "a": 0o600, ".env": 0o600}),
        (0o027, {"sub": 0o750, "run.sh": 0o750, "a": 0o640, ".env": 0o600}),
    ],
)
def test_a_copy_is_as_open_as_its_source_and_the_umask_allow(
    home: Path, tmp_path: Path, umask: int, modes: dict[str, int]
) -> None:
    folder = write(tmp_path / "modes", **{"sub/run.sh": "#!/bin/sh\n", "a": "", ".env": "KEY=secret\n"})
    for name, mode in (("sub/run.sh", 0o777), ("a", 0o464), (".env", 0o600)):
        (folder / name).chmod(mode)
    with private.umask(umask):
        freeze(folder, tmp_path / "code")
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "code").rglob("*")} == modes
    assert stat.S_IMODE((tmp_path / "code").stat().st_mode) == modes["sub"]


def test_names_that_are_no_utf8_survive(project: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9 \n\t.py")
    write(project, **{name: "x"})
    freeze(project, tmp_path / "code")
    assert (tmp_path / "code" / name).read_text() == "x"


def test_too_many_bytes_name_the_largest_parts_and_copy_nothing(home: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(copying, "LIMIT_BYTES", 1000)
    folder = write(tmp_path / "large", **{"data/raw/a.bin": "x" * 3000, "b.bin": "y" * 900, "c": "z" * 200, "d": "1"})
    with pytest.raises(UserError) as error:
        freeze(folder, tmp_path / "code")
    said = str(error.value)
    assert f"{folder}: the code has 4,101 bytes; a run copies at most 1,000 bytes" in said
    assert "data/raw/a.bin (3,000 bytes), b.bin (900 bytes), c (200 bytes)." in said
    assert all(word in said for word in (".gitignore", "`code: none`", "smaller folder"))
    assert not list(tmp_path.glob("*code"))


def test_too_many_files_name_the_largest_folders(home: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(copying, "LIMIT_FILES", 10)
    folder = write(tmp_path / "many", **{f"data/{i}": "" for i in range(20)}, a="")
    with pytest.raises(UserError, match=r"21 files; a run copies at most 10 files.*: data \(20 files\), a \(1 file\)"):
        freeze(folder, tmp_path / "code")


@pytest.mark.skipif(not machine.why_not("read"), reason="this process reads everything")
def test_an_unreadable_file_is_one_error(home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "closed", a="a")
    (folder / "a").chmod(0)
    with pytest.raises(UserError, match="a: cannot be read: Permission denied; make it readable"):
        freeze(folder, tmp_path / "code")
    assert not list(tmp_path.glob("*code"))


def test_a_source_that_is_no_folder_is_one_error(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        freeze(tmp_path / "none", tmp_path / "code")
    with pytest.raises(UserError, match="this is not a folder"):
        freeze(write(tmp_path, f="") / "f", tmp_path / "code")


def test_what_a_killed_copy_left_is_replaced(project: Path, tmp_path: Path) -> None:
    write(tmp_path / ".code", stale="")
    freeze(project, tmp_path / "code")
    assert "stale" not in content(tmp_path / "code") and not (tmp_path / ".code").exists()


NAMES = st.sampled_from(["a", "b/c", "b/d", "e"])


@given(st.dictionaries(NAMES, st.tuples(st.binary(max_size=3), st.booleans())), st.data())
def test_every_change_changes_the_checksum(files: dict[str, tuple[bytes, bool]], data: st.DataObject) -> None:
    """Equal folders have equal checksums, and others have others."""
    other = data.draw(
        st.one_of(st.just(files), st.dictionaries(NAMES, st.tuples(st.binary(max_size=3), st.booleans())))
    )
    with tempfile.TemporaryDirectory() as place:
        sums = []
        for number, tree in enumerate((files, other)):
            folder = Path(place, str(number))
            folder.mkdir()
            for name, (text, program) in tree.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(text)
                (folder / name).chmod(0o700 if program else 0o600)
            sums.append(checksum_of(folder))
    assert (sums[0] == sums[1]) == (files == other)


def test_a_copy_of_the_copy_has_its_checksum(project: Path, tmp_path: Path) -> None:
    found = freeze(project, tmp_path / "code")
    shutil.copytree(tmp_path / "code", tmp_path / "again", symlinks=True)
    assert checksum_of(tmp_path / "again") == found.checksum
    write(tmp_path / "again", **{"train.py": "3"})
    assert checksum_of(tmp_path / "again") != found.checksum


def test_a_selection_can_be_looked_at_without_a_copy(project: Path) -> None:
    found = select(project)
    assert (found.files, found.size_bytes, found.tracked) == (4, 9, True)


@pytest.mark.parametrize("code", [".", "..", "link", ".ssh", ".config/gcloud", "../work", "../work/runs"])
def test_a_home_folder_and_one_that_holds_the_runs_are_no_code(home: Path, tmp_path: Path, code: str) -> None:
    write(home, **{".ssh/id_rsa": "key", ".config/gcloud/token": "key"})
    write(tmp_path / "work", **{"train.py": "1", "runs/run/plan.json": "{}"})
    (home / "link").symlink_to(".")
    into = tmp_path / "work/runs/run/code"
    with pytest.raises(UserError, match=r"is copied; put the code into a folder of its own .*`--code none`"):
        freeze(home / code, into)
    assert not into.exists() and not list(into.parent.glob(".code*"))


@pytest.mark.parametrize("tracked", [False, True])
def test_keys_and_logins_are_never_copied(home: Path, tmp_path: Path, tracked: bool) -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----\n"
    kept = {"train.py": "1", "ssh/config.py": "", "lib/pem.py": "", "id_rsa.pub": "s"}
    kept["ca.crt"] = "-----BEGIN CERTIFICATE-----"
    secret = [
        ".ssh/config", ".gnupg/pubring.kbx", ".aws/credentials", ".netrc", ".secrets/wandb", ".secrets.env", ".pgpass",
        ".docker/config.json", ".config/gcloud/credentials.db", "a/.ssh/id", "lib/server.pem", "id_rsa", ".kube/config",
        "a/b/id_ed25519", ".git-credentials", ".pypirc", ".bash_history",
    ]  # fmt: skip
    folder = write(
        tmp_path / "project", **kept, **dict.fromkeys(secret, "x"), **{"deploy": key, "lib/putty": f"\n{key}"}
    )
    (folder / "a/.netrc").symlink_to("../.netrc")
    if tracked:
        git(folder, "init", "-q")
        git(folder, "add", "-f", ".")
    (tmp_path / "runs/run").mkdir(parents=True)
    found = freeze(folder, tmp_path / "runs/run/code")
    assert content(tmp_path / "runs/run/code") == kept
    assert any(
        "left out: keys and logins are not copied" in note and ".aws/credentials" in note for note in found.notes
    )
