"""The archive of `torusrun debug`: what it has, and none of the secrets that are planted in the run."""

import io
import json
import shlex
import tarfile
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.secret_forms import FORMS, HEX, PLAIN, VALUE
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.secret_forms import REMOVED
from torusrun.orchestrator.run.folder.without_secrets import Cleaner
from torusrun.orchestrator.upkeep.support.archive import TAIL_BYTES

ENV = {
    "PLAIN": "of-the-run-planted5577",
    "QUOTED": 'it\'s a "phrase" planted5578',
    "LINES": "first line planted5579\nsecond line planted5580",
}
OF_SITE = "of-the-site-planted5581"
TOKEN = "of-the-attempt-planted5582"
FROM_USER = "of-the-user-planted5583"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nbase64ofplanted5584\n-----END RSA PRIVATE KEY-----"
PLANTED = [f"planted{number}" for number in range(5577, 5590)]  # no time or process id looks so


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run that ended, with secrets in its records and its output."""
    spec = write_specs(home)
    with (home / "site.yaml").open("a") as site:
        site.write(f"env: {{OF_SITE: {OF_SITE}}}\n")
    with spec.open("a") as file:
        file.write(f"env: {json.dumps(ENV)}\nsetup: ['export MY_TOKEN=in-setup-planted5585']\n")
    monkeypatch.setenv("WANDB_API_KEY", FROM_USER)
    monkeypatch.chdir(home)
    made = make(spec, End(State.FAILED, f"rank 0 said {ENV['PLAIN']}"))
    attempt = made.attempt(1)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in ENV.items())
    write_text(attempt.script, f"#!/bin/bash\n{exports}cp https://me:in-url-planted5586@example.org/x .\n")
    write_json(attempt.config, {"token": TOKEN})
    write_json(attempt.launch, {"program": {"environment": ENV}})
    said = [
        *ENV.values(),
        OF_SITE,
        TOKEN,
        FROM_USER,
        KEY,
        "Authorization: Bearer in-header-planted5587",
        "--api-key after-planted5588",
    ]
    write_text(
        attempt.rank_log(0), "\n".join(["begins well", *said, json.dumps(ENV), "password: 'typed planted5589'", "ends"])
    )
    write_text(attempt.jobs_stdout, f"the job said {ENV['PLAIN']}\n")
    write_text(attempt.rank_log(2), "".join(char * 9999 for char in "y-:a ='\".") * 6)  # slow for careless patterns
    write_text(attempt.rank_log(1), "x" * 99 + "\n" + "y" * 2 * TAIL_BYTES + f"{ENV['PLAIN']}\nlast line\n")
    return made


def test_the_archive_has_what_happened_and_no_secret(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "last"]) == 0
    listing = capsys.readouterr().out
    path = Path(f"torusrun-debug-{run.run_id}.tar.gz")
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as packed:
        files = {name.partition("/")[2]: packed.extractfile(name).read().decode() for name in packed.getnames()}  # type: ignore[union-attr]
    leaked = [(number, name) for number in PLANTED for name, text in files.items() if number in text]
    assert not leaked and not [number for number in PLANTED if number in listing], leaked
    expected = {"versions.json", "site.json", "plan.json", "ledger.jsonl", "attempts/1/job.sh", "attempts/1/job.out"}
    expected |= {"attempts/1/jobs.out"}
    assert expected <= set(files), expected - set(files)
    assert all(name in listing for name in files), "print all that is in it"
    never = [name for name in files if Path(name).name in ("launch.json", "config.json", "run.yaml", "state.pt")]
    assert not never
    log = files["attempts/1/logs/rank-0000.log"]
    assert log.startswith("begins well") and log.endswith("ends") and REMOVED in log
    assert json.loads(files["plan.json"])["spec"]["env"] == dict.fromkeys(ENV, REMOVED)
    assert files["attempts/1/logs/rank-0001.log"] == "last line\n", "a line that is cut could begin within a secret"
    for name, text in files.items():
        assert not name.endswith(".json") or json.loads(text), f"{name} must stay JSON"


def test_an_archive_is_never_overwritten(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.tar.gz").write_text("mine")
    assert main(["debug", "last", "--to", "mine.tar.gz"]) == 2
    assert "exists already" in capsys.readouterr().err and Path("mine.tar.gz").read_text() == "mine"


def test_a_damaged_run_still_has_an_archive(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.plan.write_text("{")
    run.attempt(1).rank_log(0).unlink()
    run.attempt(1).rank_log(0).symlink_to("/etc/passwd")
    assert main(["debug", run.run_id, "--to", "x.tar.gz"]) == 0
    said = capsys.readouterr().out
    assert "plan.json  (left out: it is damaged)" in said
    with tarfile.open("x.tar.gz") as packed:
        assert b"root:" not in b"".join((packed.extractfile(name) or io.BytesIO()).read() for name in packed.getnames())


def test_a_word_after_an_option_for_a_secret_is_removed() -> None:
    words = ["python", "train.py", "--api-key", "k1", "--lr", "0.1", "--token=k2", "--steps", "10"]
    assert Cleaner([]).value(words) == [
        "python", "train.py", "--api-key", REMOVED, "--lr", "0.1", f"--token={REMOVED}", "--steps", "10",
    ]  # fmt: skip
    assert Cleaner([("A", "1")]).text("loss 1.5 at step 11, A=1") == f"loss 1.5 at step 11, A={REMOVED}"


def test_secrets_in_the_forms_of_many_programs_are_removed_and_other_text_stays() -> None:
    cleaner = Cleaner(())
    secrets = (VALUE, VALUE[:20], HEX, "hunter2", "IOSFODNN7EXAMPLE", "abcdefghijklmnopqrstuvwxyzABC")
    shown = {form: cleaner.text(f"before\n{form}\nafter") for form in FORMS}
    assert not {form: text for form, text in shown.items() if any(secret in text for secret in secrets)}
    assert all(any(secret in form for secret in secrets) for form in FORMS)
    assert [cleaner.text(text) for text in PLAIN] == PLAIN


@pytest.mark.parametrize("linked", ["attempts", "attempts/1", "attempts/1/logs", "attempts/1/ranks"])
def test_no_linked_folder_of_a_run_is_read(
    run: RunFolder, tmp_path: Path, linked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of a stranger could lead `debug` and `logs` to files that only their user may read."""
    (run.folder / linked).rename(mine := tmp_path / "mine")
    (run.folder / linked).symlink_to(mine)
    for path in list(mine.rglob("*")):
        if path.is_file():
            path.write_text(
                f'{{"note": "thesis of {path.name}"}}' if path.suffix == ".json" else f"thesis of {path.name}"
            )
    assert main(["debug", run.run_id, "--to", "linked.tar.gz"]) == 0
    with tarfile.open("linked.tar.gz") as packed:
        found = {name: (packed.extractfile(name) or io.BytesIO()).read() for name in packed.getnames()}
    assert not [name for name, content in found.items() if b"thesis" in content]
    for words in ([], ["--errors"], ["--rank", "0"]):
        main(["logs", run.run_id, *words])
    main(["explain", run.run_id])
    said = capsys.readouterr()
    assert linked.endswith("ranks") or "thesis" not in said.out + said.err
