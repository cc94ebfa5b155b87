"""The script for bash, which zsh runs by its bashcompinit."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.cli.completion.words import Candidates, CompletedVerb, shipped_sites, verbs

HEAD = r"""# Completion of torusrun, made by `torusrun completion`. Make it again after an upgrade.
_torusrun_of_kind() { # a kind, and the beginning of a word; the answer is in found and words
    local state=$HOME/.local/state config=$HOME/.config
    case ${XDG_STATE_HOME-} in /*) state=$XDG_STATE_HOME ;; esac
    case ${XDG_CONFIG_HOME-} in /*) config=$XDG_CONFIG_HOME ;; esac
    local here=() there=()
    case $1 in
    runs)
        _torusrun_of_kind sweeps "$2"
        here=("$state"/torusrun/runs/"$2"*)
        there=("$state"/torusrun/remote/"$2"*.json)
        ;;
    sweeps) # by their first members
        here=("$state"/torusrun/runs/"$2"*.0)
        there=("$state"/torusrun/remote/"$2"*.0.json)
        words=" last"
        ;;
    sites)
        there=("$config"/torusrun/sites/"$2"*.yaml)
        words+=" @SITES@"
        ;;
    esac
    [ -L "${here[0]-}" ] || here=()
    [ -e "${there[0]-}" ] || there=()
    here=("${here[@]##*/}") there=("${there[@]##*/}")
    there=("${there[@]%.*}")
    if [ "$1" = sweeps ]; then
        here=("${here[@]%.0}") there=("${there[@]%.0}")
    fi
    found+=("${here[@]}" "${there[@]}")
}

_torusrun() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
    local kind= words= options= command= found=() at IFS=$' \t\n'
    COMPREPLY=()
    if [ "$word" = "=" ]; then
        word=
    elif [ "$before" = "=" ]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((at = 2; at < COMP_CWORD; at++)); do
        [ "${COMP_WORDS[at]}" != "--" ] || command=yes
    done
    if [ "$COMP_CWORD" = 1 ]; then
        words="@VERBS@ --help --version"
    elif [ "$command" ]; then
        kind=files
        [ "$before" != "--" ] || COMPREPLY=($(compgen -c -- "$word"))
    else
        case "$verb $before" in
"""
TAIL = r"""        esac
    fi
    for at in $kind; do
        case $at in
        files)
            IFS=$'\n'
            COMPREPLY+=($(compgen -f -- "$word"))
            IFS=$' \t\n'
            ;;
        runs | sweeps | sites) _torusrun_of_kind "$at" "$word" ;;
        esac
    done
    COMPREPLY+=(${found[@]+"${found[@]}"}) # not by `compgen -W`, which would run what a name has in $(...)
    [ "$kind" = none ] || COMPREPLY+=($(compgen -W "$words" -- "$word"))
}
"""
BASH = "complete -o filenames -F _torusrun torusrun\n"
ZSH = r"""
autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit
_torusrun_in_zsh() {
    local -a COMP_WORDS others
    local -i COMP_CWORD=$((CURRENT - 1))
    local found files=
    COMP_WORDS=("${words[@]}")
    for found in ${(f)"$(compgen -F _torusrun -- "${words[CURRENT]}")"}; do
        if [[ -e $found ]]; then files=yes; else others+=("$found"); fi
    done
    [[ -z $files ]] || _files
    compadd -a others
}
compdef _torusrun_in_zsh torusrun
"""


def script() -> str:
    """The script for bash."""
    return _functions() + BASH


def zsh_script() -> str:
    """The script for zsh."""
    return _functions() + ZSH


def _functions() -> str:
    known = list(verbs())
    head = HEAD.replace("@VERBS@", " ".join(verb.name for verb in known)).replace("@SITES@", " ".join(shipped_sites()))
    lines = [line for verb in known for line in _values_of_options(verb)] + ["        *) case $verb in"]
    lines += [line for verb in known for line in _of_verb(verb)] + ["        esac ;;"]
    return head + "\n".join(lines) + "\n" + TAIL


def _values_of_options(verb: CompletedVerb) -> Iterator[str]:
    for option in verb.options:
        if option.value is not None:
            names = " | ".join(f'"{verb.name} {name}"' for name in option.names)
            yield f"        {names}) {_wanted(option.value) or 'kind=none'} ;;"


def _of_verb(verb: CompletedVerb) -> Iterator[str]:
    options = " ".join(name for option in verb.options for name in option.names)
    yield f"        {verb.name}) case $COMP_CWORD,$word in"
    yield f"            *,-*) words='{options}{' --' if verb.takes_a_command else ''}' ;;"
    if len(verb.values) > 1:
        yield f"            2,*) {_wanted(verb.values[0]) or ':'} ;;"
    kinds = " ".join(dict.fromkeys(value.kind for value in verb.values if value.kind))
    words = tuple(word for value in verb.values[1:] or verb.values for word in value.words)
    yield f"            *) {_wanted(Candidates(kinds, words)) or ':'} ;;"
    yield "            esac ;;"


def _wanted(value: Candidates) -> str:
    """The shell's variables for these words; '' if there are none."""
    listed = " ".join(value.words)
    return " ".join(f"{name}='{text}'" for name, text in (("kind", value.kind), ("words", listed)) if text)
