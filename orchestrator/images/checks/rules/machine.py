"""Whether this machine can build or start an image as the site requires."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.images.checks.compat import OLDEST_RUNTIME
from orchestrator.images.checks.findings import Finding, fits, unknown
from orchestrator.images.checks.needs import Wanted
from orchestrator.images.checks.sourced_facts import HostFacts
from orchestrator.images.definitions.image_file import ImageFile
from orchestrator.images.runtime import Runtime, own_environment

ASK_BY_JOB = "the job finds it on its node, or ends; 'container.runtime' of the site can name its path"


def runtime(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The runtime of this machine; the nodes may have another one."""
    found, evidence = host.runtime, host.evidence("runtime")
    if found is None and wanted.cluster and not wanted.builds:
        yield unknown(
            "runtime-missing", f"no apptainer or singularity is found on this machine; {ASK_BY_JOB}", evidence
        )
    elif found is None:
        yield Finding("runtime-missing", "neither apptainer nor singularity is found here", evidence=evidence)
    else:
        yield _old(found, f"`{found.command} --version`: {found}")
    if wanted.builds and found:
        yield from _building(wanted, host, found)


def _old(runtime: Runtime, evidence: str) -> Finding:
    oldest = OLDEST_RUNTIME[runtime.family]
    if runtime.version < oldest:
        return Finding("runtime-old", f"{runtime} is older than {'.'.join(map(str, oldest))}", evidence=evidence)
    return fits("runtime-old", f"{runtime} starts images", evidence)


def _building(wanted: Wanted, host: HostFacts, runtime: Runtime) -> Iterator[Finding]:
    asked = "/etc/subuid and newuidmap were looked for"
    if wanted.fakeroot and not (host.fakeroot and runtime.has("--fakeroot")):
        yield Finding("no-fakeroot", "you cannot use --fakeroot on this machine", evidence=asked)
    elif wanted.fakeroot:
        yield fits("no-fakeroot", "you can use --fakeroot on this machine", asked)
    if not host.user_namespaces:
        yield Finding(
            "no-user-namespaces", "user namespaces are switched off here", evidence="`unshare --user true` fails"
        )
    else:
        yield fits("no-user-namespaces", "you can make user namespaces here", "`unshare --user true` works")


def modules(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The site's modules; a login node may lack them."""
    if host.modules_failed:
        what = "the site's modules do not load here, so the runtime and the MPI of a job may be others than here"
        yield unknown("modules", what, host.modules_failed)


def shell_variables(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The variables of the user's shell, often set by a module, that act on every container."""
    given = dict.fromkeys(host.shell_variables, "")
    without = [name for name in given if name not in own_environment(given)]
    acting = [name for name in given if name not in without]
    if without:
        what = f"{', '.join(without)} of your shell is not used by torusrun"
        yield Finding("shell-variables", what, "warning", "the environment of this shell")
    if acting:
        what = f"{', '.join(acting)} of your shell changes every container that is started from it"
        yield Finding("shell-variables", what, "warning", "the environment of this shell")
    if not given:
        yield fits("shell-variables", "no variable of your shell changes containers", "the environment of this shell")


def binds(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The paths that the site binds must exist here. They rarely exist on the nodes alone."""
    for path in host.missing_paths:
        yield Finding(
            "bind-missing", f"{path} is to be bound but does not exist", evidence=f"{path} was looked for here"
        )
    if not host.missing_paths:
        yield fits("bind-missing", "all that the site binds is there", "this machine's file systems")


def image_file(asked: ImageFile) -> Iterator[Finding]:
    """The checks of an image file by itself."""
    base = asked.base
    if base.docker and not base.digest:
        yield Finding(
            "base-without-digest", f"the base {base.docker} is named without a digest", "warning", "the image file"
        )
    else:
        yield fits("base-without-digest", "the base is fixed by its digest", "the image file")
