"""Completion: the words of every verb, runs and sites from their folders, and a Tab on a terminal of each shell."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.terminals import Terminal
from tests.unit.test_roles import GRPO, planned
from torusrun.orchestrator.cli.main import VERBS, main
from torusrun.orchestrator.cli.verb_list import parser_of
from torusrun.orchestrator.cli.verbs.completion import words
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.folder.run_folder import RunFolder

RUN, ELSEWHERE = "digits-20261123-200816-1e13", "record-20261123-200816-ffff"
SWEEP, SWEEP_ELSEWHERE = "tried-20261123-200816-2222", "wide-20261123-200816-3333"
MEMBERS = {f"{SWEEP}.{number}" for number in range(11)}
TYPED = {
    "statu\tdi\t": f"status {RUN}",
    "plan --si\tmi\tru\t": "plan --site mine run.yaml",
    "run --si\tmi\t-- sh ru\t": "run --site mine -- sh run.yaml",
}  # what the user types -> the line that runs


def needs(shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")


@pytest.fixture
def folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory; its user has two runs, two sweeps and a site."""
    state, config, place = home / "state/torusrun", home / ".config/torusrun/sites", home / "place"
    for made in (state / "runs", state / "remote", config, place):
        made.mkdir(parents=True)
    for run in (RUN, *MEMBERS):
        (state / "runs" / run).symlink_to("/nowhere")
    for run in (ELSEWHERE, f"{SWEEP_ELSEWHERE}.0", f"{SWEEP_ELSEWHERE}.1"):
        (state / "remote" / f"{run}.json").touch()
    (config / "mine.yaml").touch()
    (place / "run.yaml").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(place)
    return place


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    made = folder.parent / f"completion.{shell}"
    made.write_text(capsys.readouterr().out)
    return made


def test_every_verb_and_every_option_is_completed() -> None:
    assert {*VERBS} <= {*words([""])}
    for verb in VERBS:
        options = {
            name
            for action in parser_of(verb)._actions
            if action.help != "==SUPPRESS=="
            for name in action.option_strings
        }
        assert options <= {*words([verb, "-"])}, f"{verb}: not all of its options are completed"


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("status dig", {RUN}),
        (
            "show ",
            {"last", RUN, ELSEWHERE, *MEMBERS, SWEEP, *(f"{SWEEP_ELSEWHERE}{n}" for n in ("", ".0", ".1"))},
        ),
        (f"cancel {SWEEP}", {SWEEP, *MEMBERS}),
        ("reproduce dig", {RUN}),
        ("reproduce last --compare rec", {ELSEWHERE}),
        ("forward dig", {RUN}),
        ("export dig", {RUN}),
        ("export last --as ", {"csv", "tensorboard"}),
        ("report dig", {RUN}),
        ("rm dig", {RUN}),
        ("status --state no", {"node_fail"}),
        ("run --site m", {"mine"}),
        ("gc --site m", {"mine"}),
        ("examples programs/", {"programs/ddp"}),
        ("recipes show sony-2", {"sony-224s"}),
        ("predict --gpu p1", {"p100"}),
        ("submit --after rec", {ELSEWHERE}),
        ("plan --site m", {"mine"}),
        ("plan --site ts", {"tsubame4"}),
        ("nodes ", {"ls", "add", "forgive"}),
        ("collect --checkpoints ne", {"newest"}),
        ("logs --rank ", set()),
        ("plan --site=m", {"--site=mine"}),
        ("plan --site = m", {"mine"}),
        ("run -- sh ru", set()),
        ("run -", {"--"}),
    ],
)
def test_words_of_each_kind(line: str, known: set[str], folder: Path) -> None:
    found = {*words(line.split(" "))}
    assert found >= known if line == "run -" else found == known


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("logs RUN --role ", {"rollout", "judge", "trainer"}),
        ("logs --rank 1 RUN --role ro", {"rollout"}),
        ("shell --role=j", set()),  # no run is known yet
        ("shell RUN --role=j", {"--role=judge"}),
        ("forward RUN ro", {"rollout"}),
        ("submit --after RUN:", {"RUN:rollout", "RUN:judge", "RUN:trainer"}),
        ("submit --after RUN:ro", {"RUN:rollout"}),
        ("submit --after RUN : ro", {"rollout"}),  # as bash splits it
        ("submit --after RUN :", {"rollout", "judge", "trainer"}),
        ("logs digits --role ", set()),
    ],
)
def test_the_roles_of_a_run(line: str, known: set[str], folder: Path) -> None:
    made = planned(folder, GRPO)
    run = RunFolder(made.folder)
    run.folder.mkdir(parents=True)
    with index.announced(run):
        run.plan.write_text(json.dumps(made.as_json()))
    assert {*words(line.replace("RUN", made.run_id).split(" "))} == {word.replace("RUN", made.run_id) for word in known}


def test_fish_asks_with_the_words_of_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("fish")
    for line, known in {
        "torusrun show dig": RUN,
        "torusrun plan ru": "run.yaml",
        "torusrun plan --site mi": "mine",
    }.items():
        fish = ["fish", "--no-config", "-c", f"source {script('fish', folder, capsys)}; complete -C '{line}'"]
        answer = subprocess.run(fish, capture_output=True, text=True, timeout=240)
        assert [text.split("\t")[0] for text in answer.stdout.splitlines()] == [known], answer


@pytest.mark.parametrize(("shell", "plain"), [("bash", "bash --norc --noprofile"), ("zsh", "zsh -f")])
def test_a_tab_on_a_terminal(shell: str, plain: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs(shell)
    made = script(shell, folder, capsys)
    program = f"import os; os.chdir({str(folder)!r}); os.execvp({shell!r}, {[*plain.split(), '-i']!r})"
    with Terminal(program, PS1="ready> ", HOME=str(folder.parent)) as terminal:
        at = terminal.until("ready> ")
        terminal.press(f"source {made}; torusrun() {{ printf 'got:%s\\n' \"$*\"; }}; echo sour''ced\n")
        at = terminal.until("sourced", at)
        for typed, whole in TYPED.items():
            terminal.press(f"torusrun {typed}\n")
            at = terminal.until(f"got:{whole}", at)


def test_a_name_with_blanks_is_one_word_and_no_name_is_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parent / ".config/torusrun/sites/$(touch ran).yaml").touch()
    (folder.parent / ".config/torusrun/sites/my own.yaml").touch()
    ask = 'source "$1"; COMP_CWORD=3; COMP_WORDS=(torusrun plan --site ""); _torusrun'
    shown = "printf '%s\\n' \"${COMPREPLY[@]}\""
    command = ["bash", "-c", f"{ask}; {shown}", "bash", script("bash", folder, capsys)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert {"$(touch ran)", "my own"} <= {*answer.stdout.splitlines()}, answer
    assert not (folder / "ran").exists(), "Tab ran the name of a site's file"
