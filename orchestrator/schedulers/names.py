"""Makes a name that qsub accepts from any name that a user gave."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 200  # OpenPBS takes 230 characters, Grid Engine 511


def fitting(name: str) -> str:
    """`name` with `_` in place of the characters that schedulers refuse; an acceptable name stays as it is.

    PBS refuses blanks, slashes and letters beyond ASCII, Grid Engine `:`, `@`, `\\`, `*`, `?` and a first digit.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    fit = re.sub(r"[^A-Za-z0-9_.+-]", "_", plain.strip())[:LONGEST]
    return fit if re.match("[A-Za-z]", fit) else f"job_{fit}"[:LONGEST]
