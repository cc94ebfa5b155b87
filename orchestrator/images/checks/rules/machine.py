"""Whether this machine can build or start an image as the site requires."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.images.checks.compat import OLDEST_RUNTIME
from torusrun.orchestrator.images.checks.findings import Finding, fits, unknown
from torusrun.orchestrator.images.checks.needs import Wanted
from torusrun.orchestrator.images.checks.sourced_facts import HostFacts
from torusrun.orchestrator.images.definitions.image_file import ImageFile
from torusrun.orchestrator.images.runtime import Runtime, dotted, own_environment

ASK_BY_JOB = "the job finds it on its node, or ends; 'container.runtime' of the site can name its path"


def runtime(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The runtime of this machine; the nodes may have another one."""
    found, evidence = host.runtime, host.evidence("runtime")
    if wanted.pyxis:
        yield from _pyxis(wanted, host)
    elif found is None and wanted.cluster and not wanted.builds:
        what = f"no apptainer or singularity is found on this machine; {ASK_BY_JOB}"
        yield unknown("runtime-missing", what, evidence)
    elif found is None:
        yield Finding("runtime-missing", "neither apptainer nor singularity is found here", evidence=evidence)
    else:
        asked, oldest = f"`{found.command} --version`: {found}", OLDEST_RUNTIME[found.family]
        if found.version < oldest:
            yield Finding("runtime-old", f"{found} is older than {dotted(oldest)}", evidence=asked)
        else:
            yield fits("runtime-old", f"{found} starts images", asked)
    if wanted.builds and found:
        yield from _building(wanted, host, found)


def _pyxis(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    asked = f"`{wanted.launcher} --help` was searched for --container-image"
    if host.pyxis is None:
        yield unknown("pyxis-missing", "whether Slurm has Pyxis here", host.evidence("pyxis"))
    elif host.pyxis:
        yield fits("pyxis-missing", "srun has the options of Pyxis", asked)
    else:
        yield Finding("pyxis-missing", "srun has no --container-image: Pyxis is not installed here", evidence=asked)
    if wanted.builds and not host.runtime:
        what = "neither apptainer nor singularity is found here, and enroot cannot build an image file"
        yield Finding("pyxis-unbuilt", what, evidence=host.evidence("runtime"))


def _building(wanted: Wanted, host: HostFacts, runtime: Runtime) -> Iterator[Finding]:
    asked = "/etc/subuid and newuidmap were looked for"
    if wanted.fakeroot and not (host.fakeroot and runtime.has("--fakeroot")):
        yield Finding("no-fakeroot", "you cannot use --fakeroot on this machine", evidence=asked)
    elif wanted.fakeroot:
        yield fits("no-fakeroot", "you can use --fakeroot on this machine", asked)
    if not host.user_namespaces:
        failed = "`unshare --user true` fails"
        yield Finding("no-user-namespaces", "user namespaces are switched off here", evidence=failed)
    else:
        yield fits("no-user-namespaces", "you can make user namespaces here", "`unshare --user true` works")


def modules(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The site's modules; a login node may lack them."""
    if host.modules_failed:
        what = "the site's modules do not load here, so the runtime and the MPI of a job may differ from those here"
        yield unknown("modules", what, host.modules_failed)


def shell_variables(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The variables of the user's shell, often set by a module, that act on every container."""
    evidence, given = "the environment of this shell", dict.fromkeys(host.shell_variables, "")
    acting = own_environment(given)
    for names, does in (
        (given.keys() - acting.keys(), "is not used by torusrun"),
        (acting.keys(), "changes every container that is started from it"),
    ):
        if names:
            what = f"{', '.join(sorted(names))} of your shell {does}"
            yield Finding("shell-variables", what, "warning", evidence)
    if not given:
        yield fits("shell-variables", "no variable of your shell changes containers", evidence)


def binds(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """The paths that the site binds must exist here. They rarely exist on the nodes alone."""
    for path in host.missing_paths:
        what = f"{path} is to be bound but does not exist"
        yield Finding("bind-missing", what, evidence=f"{path} was looked for here")
    if not host.missing_paths:
        yield fits("bind-missing", "all that the site binds is there", "this machine's file systems")


def image_file(asked: ImageFile) -> Iterator[Finding]:
    """The checks of an image file by itself."""
    base = asked.base
    if base.docker and not base.digest:
        what = f"the base {base.docker} is named without a digest"
        yield Finding("base-without-digest", what, "warning", "the image file")
    elif not (asked.definition or asked.dockerfile):  # what these name, the build says
        yield fits("base-without-digest", "the base is fixed by its digest", "the image file")
