"""Provenance asks git, and nothing that a checkout names is run for it."""

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.runs import provenance

STRANGER = 4321


def git(folder: Path, *words: str) -> None:
    name = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run(["git", "-C", folder, *name, *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def checkout(home: Path, tmp_path: Path) -> Path:
    """A checkout whose configuration names programs wherever git lets it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "run.yaml").write_text("name: x\n")
    (folder / ".gitattributes").write_text("*.yaml filter=evil diff=evil\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "run.yaml").write_text("name: changed\n")
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\ncat\n")
    evil.chmod(0o755)
    for key in ("core.fsmonitor", "filter.evil.clean", "diff.evil.command", "diff.evil.textconv", "diff.external"):
        git(folder, "config", key, str(evil))
    hook = folder / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(evil.read_text())
    hook.chmod(0o755)
    return folder


def test_nothing_that_a_checkout_names_is_run(checkout: Path, tmp_path: Path) -> None:
    found, diff = provenance.gather(checkout)
    assert found["git"]["dirty"] and "+name: changed" in diff
    assert not (tmp_path / "pwned").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_checkout_is_not_asked_about(checkout: Path, tmp_path: Path) -> None:
    os.chown(checkout / ".git", STRANGER, STRANGER)
    (Path(os.environ["HOME"]) / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    assert provenance.gather(checkout)[0]["git"] is None
    assert not (tmp_path / "pwned").exists()


def test_a_folder_in_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert provenance.gather(tmp_path) == (provenance.gather(tmp_path)[0], "")
    assert provenance.gather(tmp_path)[0]["git"] is None
