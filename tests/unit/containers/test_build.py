"""What a build says: its words to the runtime, and a failure's log in one line. Builds themselves: tests/lab."""

import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.images.builds import output
from torusrun.orchestrator.images.builds.build import BuildFailed, Options, _why, build, command
from torusrun.orchestrator.images.builds.cache import Cache
from torusrun.orchestrator.images.command import Bind
from torusrun.orchestrator.images.definitions import package_lock
from torusrun.orchestrator.images.definitions.definition import Variant, render
from torusrun.orchestrator.images.definitions.image_file import Base, ImageFile, Python, load
from torusrun.orchestrator.images.definitions.inputs import Inputs
from torusrun.orchestrator.images.definitions.package_lock import PackageLock
from torusrun.orchestrator.images.definitions.prepare import prepare
from torusrun.orchestrator.images.definitions.requirements import Brought
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.keys.load import load_site
from torusrun.orchestrator.run.image import building
from torusrun.orchestrator.run.image.building import _pass_on, build_in_job

# As pip 23 of Debian 12 said them.
RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f9a260f86d0>: "
)  # fmt: skip
NONE = (
    "\nERROR: Could not find a version that satisfies the requirement mine==1.0 (from versions: none)\n"
    "ERROR: No matching distribution found for mine==1.0"
)
FAILURES = [
    ("E: Unable to locate package no-such-thing", "the Debian package no-such-thing does not exist"),
    ("E: Version '9' for 'libnccl2' was not found", "the Debian package libnccl2 has no version 9"),
    ("ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: none)\n"
     "ERROR: No matching distribution found for torch==99", "no Python package torch==99"),
    ("FATAL:   While performing build: conveyor failed to get: reading manifest x in docker.io/a: manifest unknown",
     "the base image does not exist in its registry"),
    ("  Host key verification failed.\n  fatal: Could not read from remote repository.", "write git+https://"),
    ("FATAL: tar: x: Cannot write: No space left on device\nE: Unable to locate package a", "the disk is full"),
    ("Fatal error: Disk quota exceeded", "the disk is full"),
    ("FATAL: packer failed to pack: copy Failed: write /c/busybox: no space left on device",
     "the disk is full"),
    ("curl: (6) Could not resolve host: download.open-mpi.org", "download.open-mpi.org cannot be reached"),
    ("FATAL: dial tcp: lookup registry-1.docker.io: no such host", "registry-1.docker.io cannot be reached"),
    ("FATAL: could not use fakeroot: no mapping entry found in /etc/subuid for me", "--fakeroot needs an entry"),
    ("FATAL: You must be the root user, however you can use --fakeroot", "this runtime builds as root only"),
    ("ERROR: Failed to create user namespace: disabled", "gives users no user namespaces"),
    ("torusrun: offline, and neither the base nor the wheelhouse has: git", "has: git"),
    ("torch has no kernels for sm_70", "torch has no kernels for sm_70; take a PyTorch built for it"),
    ("/tmp/a: FAILED\nsha256sum: WARNING: 1 computed checksum did NOT match", "not the one that 'mpi.sha256' names"),
    ("Error for command \"build\": unknown flag: --mksquashfs-args", "too old for --mksquashfs-args"),
    ("INFO: a\nFATAL: something new happened\nUsage: x", "exit code 255: FATAL: something new happened"),
    ("+ apt-get update\n/.post.script: line 3: apt-get: not found\n"
     "FATAL:   While performing build: while running engine: while running %post section: exit status 127",
     "exit code 255: %post: /.post.script: line 3: apt-get: not found"),
    ("FATAL:   While making image from oci registry: exit status 2\nopen /x/layer.tar: permission denied",
     "exit status 2: open /x/layer.tar: permission denied"),
    (f"{RETRY}Failed to establish a new connection: [Errno -2] Name or service not known')': /simple/mine/{NONE}",
     "its name cannot be resolved here"),
    (f"{RETRY}Failed to establish a new connection: [Errno 111] Connection refused')': /simple/mine/{NONE}",
     "a server does not answer"),
    ("Could not fetch URL https://127.0.0.1:8443/simple/mine/: There was a problem confirming the ssl certificate: "
     "HTTPSConnectionPool(host='127.0.0.1', port=8443): Max retries exceeded with url: /simple/mine/ (Caused by "
     "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
     "certificate (_ssl.c:992)'))) - skipping" + NONE, "'ca_bundle'"),
    (NONE, "no Python package mine==1.0 in any index or the wheelhouse"),
    ("ERROR: Cannot install pinned 2.0 because these package versions have conflicting dependencies.\n\n"
     "The conflict is caused by:\n    The user requested pinned 2.0 (from /mnt/pinned-2.0-py3-none-any.whl)\n"
     "    The user requested (constraint) pinned==1.0\n\nERROR: ResolutionImpossible: for help visit x",
     "pip cannot install pinned 2.0: a constraint asks for pinned==1.0; ask for that version"),
    ("The conflict is caused by:\n    a 1.0 depends on c<2\n    b 1.0 depends on c>=2\n\nERROR: Resolution",
     "two packages exclude each other: a 1.0 depends on c<2, and b 1.0 depends on c>=2; correct one"),
    ("error: externally-managed-environment\n\n× This environment is externally mana", "PIP_BREAK_SYSTEM_PACKAGES=1"),
    ("error: invalid-egg-fragment\n\n× The 'a[b]' egg fragment is invalid\n╰─> from 'git+https://e.org/a#egg=a[b]'\n",
     "pip: The 'a[b]' egg fragment is invalid"),
    (f"{NONE}\nCould not fetch URL https://a.org/simple/mine/: 401 Client Error: Unauthorized for url: x - skipping",
     "https://a.org/simple/mine/ does not accept the login"),
    (f"{NONE}\nCould not fetch URL https://a.org/simple/mine/: 404 Client Error: Not Found for url: x - skipping",
     "no Python package mine==1.0"),
    ("x509: certificate signed by unknown authority\ncurl: (6) Could not resolve host: a.org",
     "in the image file; also, a.org cannot be reached: its name cannot be resolved here"),
    ("FATAL:   container creation failed: mount error: destination /mnt doesn't exist in container\n"
     "FATAL:   While performing build: while running %post section: exit status 255", "the base has no folder /mnt"),
    ("FATAL:   container creation failed: mount error: something\n"
     "FATAL:   While performing build: while running %post section: exit status 255", "mount error: something"),
    ("FATAL:   While performing build: conveyor failed to get: GET https://a.org/v2/a/b/manifests/1: UNAUTHORIZED: "
     "authentication required", "the registry does not accept the login"),
    ('FATAL: Get "https://a.org/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority',
     "'ca_bundle'"),
    ("", "exit code 255: INFO:    Starting build..."),
]  # fmt: skip


@pytest.mark.parametrize(("said", "says"), FAILURES, ids=[f[1][:40] for f in FAILURES])
def test_a_failed_build_is_explained_in_one_line(said: str, says: str) -> None:
    log = said or "INFO:    Starting build..."
    message = output.explain(log, 255)
    assert says in message and len(message.splitlines()) == 1


def test_a_killed_runtime_is_named() -> None:
    assert output.explain("INFO: unpacking", -9) == "the build was killed by SIGKILL; start it again"
    assert output.explain("", -35) == "the build was killed by signal 35; start it again", "it is a real-time signal"


def test_an_error_of_many_files_has_the_reason_of_the_first() -> None:
    assert _why(shutil.Error([("a", "b", "[Errno 28] No space left on device")])).endswith("No space left on device")
    assert _why(OSError(28, os.strerror(28))) == "No space left on device"


def test_a_line_of_a_builds_job_is_passed_on_when_it_is_whole(tmp_path: Path) -> None:
    said: list[str] = []
    output = tmp_path / "job.out"
    output.write_text("step 1\nstep 2 of")
    passed = _pass_on(output, 0, said.append)
    output.write_text("step 1\nstep 2 of 5\nend")
    passed = _pass_on(output, passed, said.append)
    _pass_on(output, passed, said.append, final=True)
    assert said == ["step 1", "step 2 of 5", "end"]


class Closed(BaseHTTPRequestHandler):
    """An index of packages that accepts no login."""

    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_index_that_does_not_accept_the_login_is_not_a_missing_package(tmp_path: Path) -> None:
    """By this machine's pip, with the lines of the template."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Closed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    text = render(
        ImageFile("x", Base(docker="debian"), python=Python(packages=("mine==1.0",))), brought=Brought(("mine==1.0",))
    )
    steps = text[text.index("    set -- --no-cache-dir") : text.index("    if [ -e ")]
    steps = steps.replace("/opt/python/bin/python", sys.executable).replace("/opt/torusrun", str(tmp_path))
    index = f"http://me:wrong@127.0.0.1:{server.server_port}/simple"
    environment = {**os.environ, "PIP_INDEX_URL": index, "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        ["sh", "-euc", steps], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    server.shutdown()
    assert done.returncode == 1 and "No matching distribution found for mine==1.0" in done.stdout
    said = output.explain(done.stdout, 255)
    assert f"@127.0.0.1:{server.server_port}/simple/mine/ does not accept the login" in said, done.stdout
    assert "wrong" not in said


def ready(image_file: Path) -> tuple[str, Inputs]:
    found = prepare(image_file, Variant())
    return found.image_file.name, found.inputs


def test_a_missing_runtime_harms_nothing(small: Path, tmp_path: Path) -> None:
    name, inputs = ready(small)
    missing = Runtime("/no/such/apptainer", "apptainer", (1, 4))
    with pytest.raises(SiteError, match="cannot be started"):
        build(name, inputs, Cache(tmp_path / "images"), lambda: missing, Options())
    assert {path.suffix for path in (tmp_path / "images").iterdir()} <= {".log", ".lock"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "images").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "images").stat().st_mode) == 0o700


def test_a_log_that_is_a_link_is_not_followed(small: Path, tmp_path: Path) -> None:
    name, inputs = ready(small)
    cache, precious = Cache(tmp_path / "images"), tmp_path / "precious"
    cache.make()
    precious.write_text("mine")
    cache.log(inputs.key).symlink_to(precious)
    with pytest.raises(BuildFailed, match="this is a symbolic link, and is not followed"):
        build(name, inputs, cache, lambda: Runtime("true", "apptainer", (1, 4)), Options())
    assert precious.read_text() == "mine"


def test_a_build_sees_no_binds_and_its_folders_are_private(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program in the runtime's place that shows what it is given."""
    monkeypatch.setenv("APPTAINER_BIND", "/spy")
    monkeypatch.setenv("SINGULARITY_BINDPATH", "/spy")
    monkeypatch.setenv("SINGULARITYENV_SPY", "/spy")
    monkeypatch.setenv("APPTAINER_NO_MOUNT", "/spy")
    monkeypatch.setenv("SINGULARITY_SANDBOX", "/spy")
    monkeypatch.setenv("APPTAINER_CACHEDIR", "/layers")
    monkeypatch.setenv("APPTAINER_MKSQUASHFS_ARGS", "-comp lz4")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    shows = tmp_path / "shows"
    shows.write_text('#!/bin/sh\nenv\necho "$@"\nstat -c "%n %a" "$PWD" "$TMPDIR" "$TMPDIR"/tmp\nexit 3\n')
    shows.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o1777)
    name, inputs = ready(small)
    cache = Cache(tmp_path / "images")
    with pytest.raises(BuildFailed):
        build(name, inputs, cache, lambda: Runtime(str(shows), "apptainer", (1, 4)), Options(temporary=temporary))
    said = cache.log(inputs.key).read_text()
    assert "APPTAINER_CACHEDIR=/layers\n" in said and "APPTAINER_MKSQUASHFS_ARGS=-comp lz4\n" in said
    assert "PATH=/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin\n" in said, "debootstrap needs chroot"
    assert "/spy" not in said and f"APPTAINER_TMPDIR={temporary}/torusrun-{inputs.key[:12]}-" in said
    assert [line.split()[-1] for line in said.splitlines()[-3:]] == ["700", "700", "1777"]
    own = re.search(f"TMPDIR=({temporary}/torusrun-.*)", said)
    assert own and f"--bind {own[1]}/tmp:/tmp --bind {own[1]}/tmp:/var/tmp " in said, "the host's /tmp is not used"
    assert not list(temporary.iterdir()), "a build clears what it made"


def test_files_that_change_before_they_are_copied_end_the_build(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    inputs, cache = Inputs("text", (("files/0", tmp_path / "a"),)), Cache(tmp_path / "images")

    def runtime() -> Runtime:
        (tmp_path / "a").write_text("2")
        return Runtime("false", "apptainer", (1, 4))

    with pytest.raises(BuildFailed, match="its files changed while the build began; build it again"):
        build("mine", inputs, cache, runtime, Options())


def test_a_build_from_a_lock_keeps_its_time_and_the_next_lock_has_the_same(small: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.write_text(
        '#!/bin/sh\nfor image; do test "${image%.sif}" = "$image" || echo $SOURCE_DATE_EPOCH > "$image"; done\n'
    )
    copies.chmod(0o755)
    name, inputs = ready(small)
    cache = Cache(tmp_path / "images")
    for built_s, said in ((0, "\n"), (1700000000, "1700000000\n")):
        began_s = time.time()
        made = build(
            name, replace(inputs, built_s=built_s, definition=f"{inputs.definition}\n# {built_s}\n"), cache,
            lambda: Runtime(str(copies), "apptainer", (1, 4)), Options(),
            examine=lambda image: ({}, PackageLock("small")),
        )  # fmt: skip
        assert made.path.read_text() == said
        kept = package_lock.read_lock(cache.packages(made.key)).built_s
        assert kept == built_s if built_s else int(began_s) <= kept <= time.time()


def test_no_secret_reaches_a_log_or_a_watcher(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_INDEX", "https://me:s3cr%2Ft-t0ken@index.example.org/simple")
    (tmp_path / "netrc").write_text("machine index.example.org login me password other-t0ken\n")
    small.write_text(small.read_text() + "secrets: {PIP_INDEX_URL: env:MY_INDEX, netrc: file:netrc}\n")
    shows = tmp_path / "shows"
    shows.write_text(
        "#!/bin/sh\nenv\necho s3cr%2Ft-t0ken; echo s3cr/t-t0ken; printf 'other-'; printf 't0ken'; printf again\n"
        'test -f "$PWD/build-only/.netrc" && echo bound "$@"\nexit 3\n'
    )
    shows.chmod(0o755)
    name, inputs = ready(small)
    cache, seen = Cache(tmp_path / "images"), list[str]()
    options = Options(secrets=load(small).secrets, secrets_beside=tmp_path)
    with pytest.raises(BuildFailed):
        build(name, inputs, cache, lambda: Runtime(str(shows), "apptainer", (1, 4)), options, seen.append)
    said = cache.log(inputs.key).read_text()
    assert "APPTAINERENV_TORUSRUN_SECRET_PIP_INDEX_URL=****" in said and "****again" in said
    assert f"{tmp_path}/netrc:/mnt/.netrc:ro" in said, "the user's own file is bound, and no copy is made"
    for text in (said, "\n".join(seen), *(p.read_text() for p in (tmp_path / "images").iterdir())):
        assert not re.search("t0ken|czNjci|b3RoZXI", text)


@pytest.mark.parametrize("mark", [",", ":", "'", '"'])
def test_a_path_that_the_runtime_would_take_apart_is_refused(small: Path, tmp_path: Path, mark: str) -> None:
    name, inputs = ready(small)
    secret = tmp_path / "d" / f"a{mark}b"
    secret.parent.mkdir()
    secret.write_text("machine example.org login me password it\n")
    for cache, options in (
        (tmp_path / "c", Options(secrets={"netrc": f"file:{secret}"})),
        (tmp_path / f"a{mark}b", Options()),
        (tmp_path / "c", Options(temporary=tmp_path / f"a{mark}b")),
        (tmp_path / "c", Options(wheelhouse=tmp_path / f"a{mark}b")),
    ):
        with pytest.raises(UserError, match=f"a{mark}b: no image can be built with .* choose another folder for"):
            build(name, inputs, Cache(cache), lambda: Runtime("false", "apptainer", (1, 4)), options)
        assert not list(cache.glob(".*")), "nothing may be left"


def test_a_secret_of_the_shell_does_not_reach_a_job(small: Path, tmp_path: Path, home: Path) -> None:
    small.write_text(small.read_text() + "secrets: {PIP_INDEX_URL: env:MY_INDEX}\n")
    (tmp_path / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\ncontainer: {{cache: {tmp_path}/images}}\n")
    site = load_site(str(tmp_path / "site.yaml"))
    with pytest.raises(UserError, match=r"'secrets.PIP_INDEX_URL' is a variable of this shell.*file:PATH"):
        build_in_job(building.prepare(str(small), site), site, sys.executable, lambda line: None)


@pytest.mark.needs("users")
def test_a_strangers_folder_among_the_temporary_ones_stays(small: Path, tmp_path: Path) -> None:
    name, inputs = ready(small)
    planted = tmp_path / f"torusrun-{inputs.key[:12]}-1"
    (planted / "inner").mkdir(parents=True)
    os.chown(planted, 4242, 4242)
    with pytest.raises(SiteError):
        missing = Runtime("/no/such/apptainer", "apptainer", (1, 4))
        build(name, inputs, Cache(tmp_path / "images"), lambda: missing, Options(temporary=tmp_path))
    assert (planted / "inner").is_dir()


def test_a_build_in_a_job_leaves_no_file_to_others(small: Path, tmp_path: Path, home: Path) -> None:
    text = f"scheduler: local\nlauncher: spawn\ncontainer: {{cache: {tmp_path}/images, runtime: /no/such/apptainer}}\n"
    (tmp_path / "site.yaml").write_text(text)
    site = load_site(str(tmp_path / "site.yaml"))
    with pytest.raises(SiteError, match="/no/such/apptainer: not found on this machine"):
        build_in_job(building.prepare(str(small), site), site, sys.executable, lambda line: None)
    (folder,) = (tmp_path / "images" / "jobs").iterdir()
    made = [folder.parent, folder, *folder.rglob("*")]
    assert any(path.suffix == ".pkl" for path in made)
    assert not [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_the_words_of_a_build() -> None:
    image, new = Path("/c/x.sif"), Runtime("apptainer", "apptainer", (1, 4))
    options = Options(wheelhouse=Path("/my wheels"))
    assert command(new, options, image, "/w/image.def", [Bind("/my wheels", "/mnt/wheels", read_only=True)]) == [
        "apptainer", "build", "--force", "--fakeroot", "--bind", "/my wheels:/mnt/wheels:ro",
        "/c/x.sif", "/w/image.def",
    ]  # fmt: skip
    with pytest.raises(SiteError, match="cannot build without root"):
        command(Runtime("singularity", "singularity", (2, 6, 1)), Options(), image, "image.def")


@pytest.mark.parametrize(
    ("text", "variant", "wheelhouse", "says"),
    [
        ("base: {folder: .}", Variant(), "/no/wheels", "the wheelhouse is not a folder"),
        ("base: {folder: .}", Variant(offline=True), None, "needs a wheelhouse for its Python packages"),
        ("base: {docker: debian}", Variant(offline=True), "/usr", "cannot start from 'base.docker'"),
    ],
)
def test_images_that_cannot_be_built_are_reported_first(
    tmp_path: Path, text: str, variant: Variant, wheelhouse: str | None, says: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\n{text}\npython: {{packages: [torch==2.13.0]}}\n")
    with pytest.raises(UserError, match=says):
        prepare(path, variant, wheelhouse=Path(wheelhouse) if wheelhouse else None)


def test_the_temporary_folder_is_the_one_of_the_job_that_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE_OF_THE_JOB", "/local/12")
    assert building._here(Path("$PLACE_OF_THE_JOB/build")) == Path("/local/12/build")
    monkeypatch.delenv("PLACE_OF_THE_JOB")
    with pytest.raises(UserError, match="a variable that is not set here: build in a job"):
        building._here(Path("$PLACE_OF_THE_JOB"))
