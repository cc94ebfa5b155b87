"""The script for fish."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.cli.completion.words import (
    FILES,
    RUNS,
    SITES,
    SWEEPS,
    Candidates,
    CompletedVerb,
    shipped_sites,
    verbs,
)

HEAD = r"""# Completion of torusrun, made by `torusrun completion fish`. Make it again after an upgrade.
function __torusrun_verb
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]; and not contains -- -- $words
end
function __torusrun_first
    test (count (commandline -opc)) -eq 2
end
function __torusrun_none
    test (count (commandline -opc)) -eq 1
end
function __torusrun_command
    contains -- -- (commandline -opc)
end
function __torusrun_ids
    set -l state $HOME/.local/state
    string match -q '/*' -- "$XDG_STATE_HOME"; and set state $XDG_STATE_HOME
    set -l found $state/torusrun/runs/* $state/torusrun/remote/*.json
    string replace -r '.*/' '' -- $found | string replace -r '[.]json$' ''
end
function __torusrun_sweeps
    printf '%s\n' last
    __torusrun_ids | string replace -fr '[.]0$' ''
end
function __torusrun_runs
    __torusrun_sweeps
    __torusrun_ids
end
function __torusrun_sites
    set -l config $HOME/.config
    string match -q '/*' -- "$XDG_CONFIG_HOME"; and set config $XDG_CONFIG_HOME
    set -l found $config/torusrun/sites/*.yaml
    printf '%s\n' @SITES@
    string replace -r '.*/' '' -- $found | string replace -r '[.]yaml$' ''
end
complete -c torusrun -f
complete -c torusrun -n __torusrun_command -F
"""
LISTED = {RUNS: "(__torusrun_runs)", SWEEPS: "(__torusrun_sweeps)", SITES: "(__torusrun_sites)"}


def script() -> str:
    lines = [line for verb in verbs() for line in _of_verb(verb)]
    return HEAD.replace("@SITES@", " ".join(shipped_sites())) + "\n".join(lines) + "\n"


def _of_verb(verb: CompletedVerb) -> Iterator[str]:
    yield f"complete -c torusrun -n __torusrun_none -a {verb.name} -d {_quoted(verb.help)}"
    after = f"complete -c torusrun -n '__torusrun_verb {verb.name}'"
    for option in verb.options:
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        takes = " -r" + (_wanted(option.value) or " -f") if option.value is not None else ""
        yield f"{after} {names}{takes} -d {_quoted(option.help)}"
    words_first = len(verb.values) > 1 and bool(verb.values[0].words)
    for at, value in enumerate(verb.values):
        if wanted := _wanted(value):
            place = ("not __torusrun_first; and " if at else "__torusrun_first; and ") if words_first else ""
            yield after.replace("__torusrun_verb", f"{place}__torusrun_verb") + wanted


def _wanted(value: Candidates) -> str:
    """The options of `complete` for these words; '' if there are none."""
    if value.kind == FILES:
        return " -F"
    words = [*([LISTED[value.kind]] if value.kind else []), *value.words]
    return f" -f -a '{' '.join(words)}'" if words else ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
