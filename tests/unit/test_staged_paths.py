"""Where a rank finds this node's copy of a path, by the list that its run left on the node."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torusrun
from torusrun.training.files.staged import VARIABLE, local, source
from torusrun.training.recipe.reading import ConfigError

PARTS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list of copies on this node."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path / "paths.json"


def test_a_path_leads_to_the_copy_of_the_nearest_staged_folder(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed.write_text(json.dumps({"/data/set": "/disk/1", "/data/set/in/it": "/disk/2", "/data/file.bin": "/disk/3"}))
    copies = {
        "/data/set": "/disk/1",
        "/data/set/": "/disk/1",
        "/data/set/x/y": "/disk/1/x/y",
        "/data/./set/in/it/x": "/disk/2/x",
        "/data/set/../file.bin": "/disk/3",
        "/data/set-2": "/data/set-2",
        "/data": "/data",
    }
    assert {path: str(torusrun.staged(path)) for path in copies} == copies
    (listed.parent / "link").symlink_to("/data/set")
    assert local(listed.parent / "link/x") == Path("/disk/1/x"), "the list names no links"
    monkeypatch.chdir("/")
    assert local(Path("data/set/x")) == Path("/disk/1/x")
    monkeypatch.delenv(VARIABLE)
    assert torusrun.staged("/data/set") == Path("/data/set"), "outside of a run every path is its own"


@given(st.lists(PARTS, min_size=1, max_size=3, unique_by="/".join), PARTS)
def test_what_is_known_of_a_source_holds_for_its_copy(
    tmp_path_factory: pytest.TempPathFactory, staged: list[list[str]], asked: list[str]
) -> None:
    folder, path = tmp_path_factory.mktemp("run"), Path("/data", *asked)
    copies = {str(Path("/data", *parts)): f"/disk/{number}" for number, parts in enumerate(staged)}
    (folder / "paths.json").write_text(json.dumps(copies))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(VARIABLE, str(folder))
        assert source(local(path)) == source(path) == path
        above = [place for place in (path, *path.parents) if str(place) in copies]
        assert local(path) == (Path(copies[str(above[0])], path.relative_to(above[0])) if above else path)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"/data": 1}', '{"/data": "disk"}', '{"/data": null}', "[" * 9999])
def test_a_damaged_list_is_refused(listed: Path, content: str) -> None:
    listed.write_text(content)
    with pytest.raises(ConfigError, match=r"^TORUSRUN_STAGED: .*paths\.json is not a list of copies$"):
        local(Path("/data"))


def test_a_list_that_is_not_this_users_own_is_refused(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"paths\.json: No such file or directory$"):
        local(Path("/data"))
    (tmp_path / "other.json").write_text("{}")
    listed.symlink_to("other.json")
    with pytest.raises(ConfigError, match="is a symbolic link, and is not followed"):
        local(Path("/data"))
    listed.unlink()
    listed.write_text("{}")
    assert local(Path("/data")) == Path("/data")
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    with pytest.raises(ConfigError, match=f"belongs to user {stranger - 1} and not to user {stranger}"):
        torusrun.staged("/data")
