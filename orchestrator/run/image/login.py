"""The environment of this login node with the site's modules, and the runtime in it.

`setup` of a site is not run: its lines are for jobs on nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import clean_environment
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.images.runtime import COMMANDS, Runtime, find
from torusrun.orchestrator.keys.shared import Software, plain
from torusrun.orchestrator.keys.site import Site

LOADING_S = 60.0
MARK = "TORUSRUN-STEP"  # on the standard error before each step
LONGEST = 400  # characters of a failed step's words


@dataclass(frozen=True)
class Login:
    """This machine with the site's modules loaded.

    `asked` says where the runtime was searched, `modules_failed` why the modules do not load, '' if they do.
    """

    environment: Mapping[str, str]
    runtime: Runtime | None
    asked: str
    modules_failed: str = ""


def login(site: Site, software: Software | None = None) -> Login:
    """Load the modules in a separate shell, activate the site's software and then `software`; look for its runtime."""
    environment, after, failed = _environment(site, software or Software())
    # Pyxis is no program. Where it starts images, a runtime may still build them, and look into them.
    own = None if pyxis.used(site.container.runtime) else site.container.runtime
    try:
        runtime = find(own, environment)
    except SiteError as error:
        return Login(environment, None, str(error), failed)
    if runtime is None:
        return Login(environment, None, f"{own or ' and '.join(COMMANDS)} looked for on PATH{after}: not found", failed)
    return Login(environment, runtime, f"{runtime.command}{after}", failed)


def _environment(site: Site, software: Software) -> tuple[dict[str, str], str, str]:
    """(the environment with the site's modules, the commands that loaded them in words, why they failed or '')."""
    own = {**clean_environment(), **plain(site.env)}
    if not (site.software.given or software.given):
        return own, "", ""
    from torusrun.orchestrator.base.templates import Text, render
    from torusrun.orchestrator.schedulers.script import activating, in_shell

    lines = [*activating(site.software), *activating(software)]
    steps = [{"line": Text(in_shell(line)), "said": line} for line in lines]
    text = render("modules/environment.sh.j2", steps=steps, mark=MARK)
    did = f" after `{'; '.join(lines)}`"
    try:
        done = process.run(["bash", "-c", text], timeout_s=LOADING_S, undecodable="surrogateescape")
    except SiteError as error:
        return own, did, str(error)
    if done.exit_code:
        why = in_short(done.stderr.rpartition(MARK)[2]) or f"exit code {done.exit_code}"
        return own, did, f"`{done.stdout or '; '.join(lines)}`: {why}"
    pairs = (entry.partition("=") for entry in done.stdout.split("\0") if "=" in entry)
    return {**{name: value for name, _, value in pairs}, **plain(site.env)}, did, ""


def in_short(output: str) -> str:
    """The output of a program in one line, without colours; of a long text its beginning and its end."""
    words = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", output).split())
    return words if len(words) <= LONGEST else f"{words[: LONGEST // 2]} [...] {words[-LONGEST // 2 :]}"
