"""The environment variables that a user may set: none that bash, which runs the job's script, uses itself."""

from __future__ import annotations

import re

# bash(1), "Shell Variables": read-only, changed by bash itself, or changing how bash reads the next lines. All names
# that begin with BASH are reserved as well: every bash first runs the file BASH_ENV.
OF_BASH = (
    "_", "COMP_WORDBREAKS", "DIRSTACK", "ENV", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "FUNCNEST",
    "GROUPS", "HISTCMD", "HISTFILE", "IFS", "LINENO", "MAPFILE", "OLDPWD", "OPTARG", "OPTERR", "OPTIND", "PIPESTATUS",
    "POSIXLY_CORRECT", "PPID", "PWD", "RANDOM", "REPLY", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID",
)  # fmt: skip
LONGEST = 200  # characters
RESERVED = rf"(?:BASH.*|{'|'.join(OF_BASH)})$"
OWN = "[Tt][Oo][Rr][Uu][Ss][Rr][Uu][Nn]_"
PATTERN = rf"^(?!{RESERVED})(?!{OWN})[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST - 1}}}$"


def variable(name: str) -> str:
    """`name` unchanged. Raises ValueError if it is not a valid name, or is reserved."""
    if not re.fullmatch(rf"[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST - 1}}}", name):
        raise ValueError(
            "is not an environment variable's name; use letters, digits and '_', beginning with a letter, at most "
            f"{LONGEST}"
        )
    if re.match(RESERVED, name):
        raise ValueError("belongs to bash, which runs the job's script; choose another name")
    if re.match(OWN, name):
        raise ValueError("belongs to torusrun, as every name that begins with TORUSRUN_; choose another name")
    return name
