"""Checks whether images can be built and run: the runtime, the needs of a build without root, and free space."""

from __future__ import annotations

import os
from collections.abc import Iterator

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.images.checks import facts
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import Login
from torusrun.orchestrator.sites.checks.check import Check, failed, ok, warning
from torusrun.training.counted import counted

SUBIDS = "ask the administrators for a range in /etc/subuid and /etc/subgid and for newuidmap"


def checks(site: Site, login: Login) -> Iterator[Check]:
    """The checks of the runtime, of the method of building, and of the folder of images."""
    runtime = login.runtime
    by_pyxis = pyxis.used(site.container.runtime)
    if by_pyxis:
        yield _pyxis(site, login)
    if runtime is None and by_pyxis:
        yield ok("image builds", "none here without apptainer; images of registries and .sqsh files need none")
    elif runtime is None:
        mend = "load its module (modules of the site), or write container.runtime; runs without an image need none"
        yield warning("container runtime", login.asked, mend)
        return
    else:
        yield ok("image builds" if by_pyxis else "container runtime", f"{runtime}: {login.asked}")
        yield _build(site, login)
    folder = absolute(site.container.cache)
    try:
        private.check_makable(folder)
        yield ok("images", f"{folder} keeps them")
    except SiteError as error:
        yield failed("images", str(error), "write container.cache: FOLDER into the site")
    yield from _of_others(site)


def _pyxis(site: Site, login: Login) -> Check:
    host = facts.host(None, site.launcher or "srun", (), login.environment, pyxis=True)
    if host.pyxis:
        return ok("container runtime", "srun has the options of Pyxis")
    if host.pyxis is None:
        said, mend = "srun did not say whether it has Pyxis", "run `srun --help` to see why"
    else:
        said, mend = "srun has no --container-image", "ask the administrators for Pyxis, or name another runtime"
    return warning("container runtime", f"{said}, and container.runtime is pyxis", mend)


def _of_others(site: Site) -> Iterator[Check]:
    """Whether the images of others can be read, and nobody but the named users could replace them."""
    if not site.container.caches:
        return
    from torusrun.orchestrator.run.image.building import caches  # imported late: it imports the templates

    try:
        shared = caches(site).shared
    except UserError as error:
        yield failed("images of others", str(error), "correct container.owners of the site")
        return
    for cache in shared:
        try:
            with explained(f"{cache.folder}: cannot be read"):
                os.listdir(cache.folder)
            cache.check()
            yield ok("images of others", f"{cache.folder}: {counted(len(cache.entries(lambda why: None)), 'image')}")
        except SiteError as error:
            mend = "ask its owner to open it, name that user in container.owners, or remove it from container.caches"
            yield warning("images of others", str(error), mend)


def _build(site: Site, login: Login) -> Check:
    """Whether a user can build on this machine in the site's way."""
    mode, where = site.container.build, site.container.build_on
    if where == "job":
        return ok("image builds", f"{mode}, in a job: the first build shows whether it works")
    assert login.runtime
    host = facts.host(login.runtime, "spawn", (), login.environment)
    other = "write container.build_on: job, if the nodes allow it"
    if mode == "fakeroot" and not login.runtime.has("--fakeroot"):
        return failed("image builds", f"{login.runtime} has no --fakeroot", "build elsewhere and copy the image")
    if mode == "fakeroot" and not host.fakeroot:
        instead = "write container.build: userns, or " if host.user_namespaces else ""
        said = "fakeroot: you have no range in /etc/subuid, or newuidmap is missing"
        return warning("image builds", said, f"{instead}{other}, or {SUBIDS}")
    if mode in ("fakeroot", "userns") and not host.user_namespaces:
        said = f"{mode}: `unshare --user true` fails, so there are no user namespaces for you"
        return warning("image builds", said, f"{other}, or build elsewhere and copy the image")
    return ok("image builds", f"{mode}: what it needs is here")
