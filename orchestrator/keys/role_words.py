"""Words in braces in the arguments and variables of a role's program: {port}, {ROLE.hosts}, {ROLE.url} and the like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

REFERENCE = re.compile(r"\{([a-z][a-z0-9_]{0,30})\.(hosts|address|port|url)\}")  # the place of another role
PORT = "{port}"  # the role's own


def referred(texts: Sequence[str]) -> set[str]:
    """The roles that these texts name in braces."""
    return {match[1] for text in texts for match in REFERENCE.finditer(text)}


def filled(text: str, facts: Mapping[str, Mapping[str, str]], port: str) -> str:
    """The text with the `facts` of roles by name, and the role's own port. All else in braces stays as it is."""
    known = REFERENCE.sub(lambda match: facts[match[1]][match[2]] if match[1] in facts else match[0], text)
    return known.replace(PORT, port)
