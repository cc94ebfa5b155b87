"""The man page, made from the parsers of the verbs."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.cli.verb_list import VERBS, parser_of, top_parser


def man_page(verbs: Sequence[str]) -> str:
    """The page in roff, with the options of these verbs."""
    head = f'.TH TORUSRUN 1 "" "torusrun {__version__}"'
    name = [".SH NAME", "torusrun \\- multi-node trainings and programs on Slurm, PBS, Grid Engine or this machine"]
    lines = [
        head,
        *name,
        ".SH SYNOPSIS",
        "torusrun VERB ...",
        ".SH DESCRIPTION",
        *_as_typed(top_parser().format_help()),
    ]
    for verb in verbs:
        lines += [
            f'.SH "TORUSRUN {verb.upper()}"',
            f"{_plain(VERBS[verb])}.",
            *_as_typed(parser_of(verb).format_help()),
        ]
    return "\n".join(lines) + "\n"


def _as_typed(text: str) -> list[str]:
    """Text with its own line breaks."""
    return [".nf", *map(_plain, text.splitlines()), ".fi"]


def _plain(line: str) -> str:
    """A line without a meaning of its own in roff."""
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
