"""The environment variables that a user may set: none of bash, which runs the job's script, and none of torchrun."""

from __future__ import annotations

import re

# bash(1), "Shell Variables": read-only, changed by bash itself, or changing how bash reads the next lines. All names
# that begin with BASH are reserved as well: every bash first runs the file BASH_ENV.
OF_BASH = (
    "_", "COMP_WORDBREAKS", "DIRSTACK", "ENV", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "FUNCNEST",
    "GROUPS", "HISTCMD", "HISTFILE", "IFS", "LINENO", "MAPFILE", "OLDPWD", "OPTARG", "OPTERR", "OPTIND", "PIPESTATUS",
    "POSIXLY_CORRECT", "PPID", "PWD", "RANDOM", "REPLY", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID",
)  # fmt: skip
# Each rank gets these with its own values (run/program/contract.py): a value of the user would never arrive.
OF_RANKS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "MASTER_ADDR", "MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
)  # fmt: skip
LONGEST = 200  # characters
RESERVED = rf"(?:BASH.*|{'|'.join(OF_BASH)})$"
OWN = "[Tt][Oo][Rr][Uu][Ss][Rr][Uu][Nn]_"
GIVEN = rf"(?:{'|'.join(OF_RANKS)})$"
PATTERN = rf"^(?!{RESERVED})(?!{GIVEN})(?!{OWN})[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST - 1}}}$"


def variable(name: str) -> str:
    """`name` unchanged. Raises ValueError if it is not a valid name, or is reserved."""
    if not re.fullmatch(rf"[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST - 1}}}", name):
        raise ValueError(
            "is not an environment variable's name; use letters, digits and '_', beginning with a letter, at most "
            f"{LONGEST}"
        )
    if re.match(RESERVED, name):
        raise ValueError("belongs to bash, which runs the job's script; choose another name")
    if re.match(GIVEN, name):
        raise ValueError("is set by torusrun for each rank, as by torchrun; leave it out")
    if re.match(OWN, name):
        raise ValueError("belongs to torusrun, as every name that begins with TORUSRUN_; choose another name")
    return name
