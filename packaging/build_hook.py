"""What a wheel has beside its code: the man page, and completion where bash and fish look for it.

Both are made from the verbs when the wheel is built, so they fit it. They go to share/ of the environment, from which
conda, Spack and pipx take them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = {"bash": "bash-completion/completions/torusrun", "fish": "fish/vendor_completions.d/torusrun.fish"}


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the files to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files into a folder of their own, unless the installation is editable."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "training", "entry")))
        from torusrun.orchestrator.cli.verbs.completion import SCRIPTS

        folder = Path(tempfile.mkdtemp(prefix="torusrun-wheel-"))
        texts = {place: SCRIPTS[shell] for shell, place in PLACES.items()}
        for number, (place, text) in enumerate({**texts, "man/man1/torusrun.1": man_page()}.items()):
            made = folder / str(number)
            made.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(made)] = f"share/{place}"


def man_page() -> str:
    """torusrun(1): the verbs with their options, as `torusrun VERB --help` prints them."""
    import os

    from torusrun.orchestrator.base.version import __version__
    from torusrun.orchestrator.cli.verb_list import EPILOG, GROUPS, parser_of

    os.environ["COLUMNS"] = "80"
    parts = [
        f'.TH TORUSRUN 1 "" "torusrun {__version__}" "User commands"',
        ".SH NAME\ntorusrun \\- run multi-node trainings from one YAML file, watch and resume them",
        ".SH SYNOPSIS\n.B torusrun\n.I VERB\n\\&...",
    ]
    for group, verbs in GROUPS.items():
        parts.append(f'.SH "{group.upper()}"')
        parts += [f'.SS "torusrun {verb}"\n{_verbatim(parser_of(verb).format_help())}' for verb in verbs]
    return "\n".join([*parts, f".SH EXIT STATUS\n{_verbatim(EPILOG)}"]) + "\n"


def _verbatim(text: str) -> str:
    """A text that roff prints as it is."""
    lines = text.strip().replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join([".nf", *(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines), ".fi"])
