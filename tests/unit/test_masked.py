"""Values without secrets, as reports show them; and linked folders of a run, which could lead to files of others."""

from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.secret_forms import FORMS, HEX, PLAIN, VALUE
from tests.unit.verbs import Capsys
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.without_secrets import REMOVED, masked


def test_a_word_after_an_option_for_a_secret_is_removed() -> None:
    words = ["python", "train.py", "--api-key", "k1", "--lr", "0.1", "--token=k2", "--steps", "10"]
    assert masked(words) == [
        "python", "train.py", "--api-key", REMOVED, "--lr", "0.1", f"--token={REMOVED}", "--steps", "10",
    ]  # fmt: skip
    assert masked({"env": {"A": "1"}, "loss": 1.5}) == {"env": {"A": REMOVED}, "loss": 1.5}


def test_secrets_in_the_forms_of_many_programs_are_removed_and_other_text_stays() -> None:
    secrets = (VALUE, VALUE[:20], HEX, "hunter2", "IOSFODNN7EXAMPLE", "abcdefghijklmnopqrstuvwxyzABC")
    shown = {form: masked(f"before\n{form}\nafter") for form in FORMS}
    assert not {form: text for form, text in shown.items() if any(secret in text for secret in secrets)}
    assert all(any(secret in form for secret in secrets) for form in FORMS)
    assert [masked(text) for text in PLAIN] == PLAIN


@pytest.mark.parametrize("linked", ["attempts", "attempts/1", "attempts/1/logs"])
def test_no_linked_folder_of_a_run_is_read(linked: str, home: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A run of a stranger could lead `logs` to files that only their user may read."""
    run = make(write_specs(home), End(State.FAILED, "rank 0 failed"))
    run.attempt(1).logs.mkdir(exist_ok=True)
    run.attempt(1).rank_log(0).touch()
    (run.folder / linked).rename(mine := tmp_path / "mine")
    (run.folder / linked).symlink_to(mine)
    for path in [path for path in mine.rglob("*") if path.is_file()]:
        text = f"thesis of {path.name}"
        path.write_text(f'{{"note": "{text}"}}' if path.suffix == ".json" else text)
    for words in ([], ["--errors"], ["--rank", "0"]):
        main(["logs", run.run_id, *words])
    main(["explain", run.run_id])
    said = capsys.readouterr()
    assert "thesis" not in said.out + said.err
