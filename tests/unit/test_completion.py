"""Completion in real shells: the words of every verb, runs and sites from their folders, and a Tab on a terminal."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.terminals import Terminal
from torusrun.orchestrator.cli.completion.words import FILES, RUNS, verbs
from torusrun.orchestrator.cli.main import VERBS, main

RUN, ELSEWHERE = "digits-20261123-200816-1e13", "record-20261123-200816-ffff"
SWEEP, SWEEP_ELSEWHERE = "tried-20261123-200816-2222", "wide-20261123-200816-3333"
MEMBERS = {f"{SWEEP}.{number}" for number in range(11)}
BASH = r"""
source "$1"; shift
while read -r line; do
    read -ra COMP_WORDS <<< "$line"
    [ "${line%_}" = "$line" ] || COMP_WORDS[${#COMP_WORDS[@]}-1]=
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _torusrun
    echo "${COMPREPLY[*]}"
done
"""
ENDS = "_"  # a line's last word, for an empty one
TYPED = {
    "statu\tdi\t": f"status {RUN}",
    "plan --si\tmi\tru\t": "plan --site mine run.yaml",
    "show di\t": f"show {RUN}",
    "reprod\tdi\t": f"reproduce {RUN}",
    "forw\tdi\t": f"forward {RUN}",
    "expo\tdi\tru\t": f"export {RUN} run.yaml",
    "gc --older\t30d --dr\t": "gc --older-than 30d --dry-run",
    "run --si\tmi\t-- sh ru\t": "run --site mine -- sh run.yaml",
    "exam\tdigi\t": "examples digits",
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
    monkeypatch.chdir(place)
    return place


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    made = folder.parent / f"completion.{shell}"
    made.write_text(capsys.readouterr().out)
    return made


def completed(shell: str, made: Path, lines: list[str]) -> list[set[str]]:
    """What the shell proposes for the last word of each line."""
    if shell == "bash":
        text = "".join(f"{line}\n" for line in lines)
        said = subprocess.run(
            ["bash", "-c", BASH, "bash", made], input=text, capture_output=True, text=True, timeout=60
        )
    else:
        asked = "; ".join(f"complete -C {shlex.quote(line.removesuffix(ENDS))}; echo ===" for line in lines)
        fish = ["fish", "--no-config", "-c", f"source {made}; {asked}"]
        said = subprocess.run(fish, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0 and not said.stderr, said.stderr
    if shell == "bash":
        return [set(line.split()) for line in said.stdout.splitlines()]
    parts = said.stdout.split("===\n")[:-1]
    return [{line.split("\t")[0] for line in part.splitlines()} for part in parts]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_every_verb_and_every_option_is_completed(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs(shell)
    known = list(verbs())
    made = script(shell, folder, capsys)
    first, *others = completed(shell, made, ["torusrun _", *(f"torusrun {verb.name} --" for verb in known)])
    assert set(VERBS) <= first, "print each verb in the script"
    for verb, found in zip(known, others, strict=True):
        options = {name for option in verb.options for name in option.names if name.startswith("--")}
        assert options <= found, f"{verb.name}: these options are not completed: {options - found}"


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torusrun status dig", {RUN}),
        (
            "torusrun show _",
            {"last", RUN, ELSEWHERE, *MEMBERS, SWEEP, *(f"{SWEEP_ELSEWHERE}{n}" for n in ("", ".0", ".1"))},
        ),
        (f"torusrun cancel {SWEEP}", {SWEEP, *MEMBERS}),
        ("torusrun reproduce dig", {RUN}),
        ("torusrun reproduce last --compare rec", {ELSEWHERE}),
        ("torusrun forward dig", {RUN}),
        ("torusrun export dig", {RUN}),
        ("torusrun export last --as _", {"csv", "tensorboard"}),
        ("torusrun report dig", {RUN}),
        ("torusrun report last -o ru", {"run.yaml"}),
        ("torusrun debug dig", {RUN}),
        ("torusrun rm dig", {RUN}),
        ("torusrun status --state no", {"node_fail"}),
        ("torusrun run --site m", {"mine"}),
        ("torusrun run --save ru", {"run.yaml"}),
        ("torusrun gc --site m", {"mine"}),
        ("torusrun examples programs/", {"programs/ddp"}),
        ("torusrun recipes show sony-2", {"sony-224s"}),
        ("torusrun predict --gpu p1", {"p100"}),
        ("torusrun submit --after rec", {ELSEWHERE}),
        ("torusrun plan run", {"run.yaml"}),
        ("torusrun plan --site m", {"mine"}),
        ("torusrun plan --site ts", {"tsubame4"}),
        ("torusrun nodes _", {"ls", "add", "forgive"}),
        ("torusrun collect --checkpoints ne", {"newest"}),
        ("torusrun logs --rank _", set()),
        ("torusrun run -- sh ru", {"run.yaml"}),
    ],
)
def test_words_of_each_kind(
    shell: str, line: str, words: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(shell)
    assert completed(shell, script(shell, folder, capsys), [line]) == [words]


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
    (folder / "my run.yaml").touch()
    ask = (
        'source "$1"; COMP_CWORD=3; COMP_WORDS=(torusrun plan --site ""); _torusrun; COMP_WORDS[2]="" COMP_WORDS[3]=my'
    )
    shown = "printf '%s\\n' \"${COMPREPLY[@]}\""
    command = ["bash", "-c", f"{ask}; {shown}; _torusrun; {shown}", "bash", script("bash", folder, capsys)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert {"$(touch ran)", "my run.yaml"} <= set(said.stdout.splitlines()), said
    assert not (folder / "ran").exists(), "Tab ran the name of a site's file"


def test_completion_starts_no_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else each Tab would take as long as a start of torusrun."""
    bare = subprocess.run(
        ["bash", "-c", BASH, "bash", script("bash", folder, capsys)], input="torusrun status dig\n",
        capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": "/nowhere"}, executable="/bin/bash",
    )  # fmt: skip
    assert bare.stdout.split() == [RUN] and not bare.stderr, bare.stderr


def test_the_kinds_are_those_of_the_verbs() -> None:
    """A renamed metavar must not end the completion of runs and files silently."""
    kinds = {verb.name: {value.kind for value in verb.values} for verb in verbs()}
    of_runs = ("shell", "status", "watch", "logs", "explain", "cancel", "resume", "collect")
    of_files = ("plan", "predict", "calibrate", "submit", "hold")
    assert all(RUNS in kinds[verb] for verb in of_runs) and all(FILES in kinds[verb] for verb in of_files), kinds
