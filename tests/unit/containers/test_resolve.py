"""`torusrun image resolve`, from a mirror and an index that serve small files here."""

import json
import lzma
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images.definitions.requirements import Brought
from torusrun.orchestrator.images.lookups import lines
from torusrun.orchestrator.images.lookups.debian import Suite, suite_of
from torusrun.orchestrator.images.lookups.web import Web, shown
from torusrun.orchestrator.images.lookups.wheels import Target, resolve

TARGET = Target((3, 11))
SUITE = """Package: base-files
Essential: yes
Priority: required
Version: 12.4
Size: 1000
Pre-Depends: awk

Package: mawk
Version: 1.3
Provides: awk
Size: 20

Package: apt
Version: 2.6.1
Size: 300

Package: python3
Version: 3.11.2-1+b1
Size: 50
Depends: python3.11 (>= 3.11.2-1~), base-files | other

Package: python3.11
Version: 3.11.2-6
Size: 5000

Package: python3-venv
Version: 3.11.2-1+b1
Size: 7

Package: ca-certificates
Version: 20230311
Size: 9

Package: openmpi-bin
Version: 4.1.4-3+b1
Size: 80
"""


class Handler(SimpleHTTPRequestHandler):
    """Files of a folder, also in parts, as indexes serve them."""

    length: str | None = None  # what HEAD reports as the length, if not the file's

    def do_HEAD(self) -> None:
        if self.length is None:
            return super().do_HEAD()
        self.send_response(200)
        self.send_header("Content-Length", self.length)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        if not asked:
            return super().do_GET()
        start, _, end = asked.removeprefix("bytes=").partition("-")
        content = Path(self.translate_path(self.path)).read_bytes()[int(start) : int(end) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Index:
    """The folder that is served, and its address."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.address = folder, f"http://127.0.0.1:{port}"
        self.names: dict[str, list[str]] = {}

    def wheel(self, name: str, version: str, *needs: str, tag: str = "py3-none-any", beside: bool = True) -> str:
        """Serve a wheel; returns its file's name. Without `beside`, only the wheel holds its metadata."""
        file, text = f"{name}-{version}-{tag}.whl", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        text += "".join(f"Requires-Dist: {need}\n" for need in needs)
        page = self.folder / "simple" / name.replace("_", "-")
        page.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(page / file, "w") as archive:
            archive.writestr(f"{name}/data", bytes(200_000))
            archive.writestr(f"{name}-{version}.dist-info/METADATA", text)
        if beside:
            (page / f"{file}.metadata").write_text(text)
        self.names.setdefault(name, []).append(file)
        links = "".join(f'<a href="{each}#sha256=0">{each}</a>\n' for each in self.names[name])
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
        return file

    @property
    def simple(self) -> str:
        return f"{self.address}/simple"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    served = tmp_path / "served"
    (served / "debian/dists/bookworm/main/binary-amd64").mkdir(parents=True)
    (served / "debian/dists/bookworm/main/binary-amd64/Packages.xz").write_bytes(lzma.compress(SUITE.encode()))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(served)))
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield Index(served, server.server_port)
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


def test_the_newest_wheels_that_fit_are_chosen_with_all_that_they_need(index: Index) -> None:
    index.wheel("mine", "1.0", "dep[fast]>=2", "windows; platform_system == 'Windows'", "old; python_version < '3.11'")
    index.wheel("dep", "1.9")
    index.wheel("dep", "2.5", "extra-one==1.0; extra == 'fast'", "other; extra == 'slow'", beside=False)
    index.wheel("dep", "3.0rc1")
    index.wheel("dep", "2.9", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.wheel("extra_one", "1.0", "dep<3")
    found = resolve(["mine==1.0"], [index.simple], TARGET, Web())
    assert {name: str(wheel.version) for name, wheel in found.wheels.items()} == {
        "mine": "1.0", "dep": "2.5", "extra-one": "1.0",
    }  # fmt: skip
    assert not found.missing and all((wheel.size_bytes or 0) > 200_000 for wheel in found.wheels.values())


def test_a_later_need_replaces_a_version_that_was_chosen_too_new(index: Index) -> None:
    for version in ("1.0", "2.0"):
        index.wheel("dep", version)
    index.wheel("mine", "1.0", "dep", "strict")
    index.wheel("strict", "1.0", "dep<2")
    found = resolve(["mine==1.0"], [index.simple], TARGET, Web())
    assert str(found.wheels["dep"].version) == "1.0" and not found.missing


def test_what_no_index_has_is_named_with_its_reason(index: Index) -> None:
    index.wheel("torch", "2.13.0", "none-such")
    indexes = [index.simple, "http://me:secret@127.0.0.1:9/whl"]
    found = resolve(["torch==2.13.0+cu126", "gone==1", "cpu==1+cpu"], indexes, TARGET, Web())
    assert "127.0.0.1:9 cannot be reached" in found.missing["torch"]
    assert found.stand_ins == {"torch": "2.13.0+cu126"} and str(found.wheels["torch"].version) == "2.13.0"
    assert set(found.missing) == {"torch", "gone", "cpu", "none-such"} and set(found.wheels) == {"torch"}
    assert not any("me:secret" in why for why in found.missing.values())
    alone = resolve(["torch==2.14"], [index.simple], TARGET, Web())
    assert alone.missing == {"torch": "no index has a wheel of torch==2.14 for this Python"}


@pytest.mark.parametrize("broken", ["page", "wheel", "size", "mirror"])
def test_no_message_contains_a_login(broken: str, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    address = index.address.replace("//", "//me:s3cret@")
    page = index.folder / "simple/mine"
    file = page / index.wheel("mine", "1.0", beside=False)
    if broken == "page":
        (page / "index.html").write_text("{}")
    elif broken == "wheel":
        file.write_bytes(b"no wheel")
    elif broken == "size":
        monkeypatch.setattr(Web, "length", lambda web, url: None)
    else:
        (index.folder / "debian/dists/bookworm/main/binary-amd64/Packages.xz").write_bytes(b"no xz")
        with pytest.raises(
            SiteError, match=f"^{index.address}/debian/.*/Packages.xz: this is not an index of packages"
        ):
            Suite.fetched(Web(), f"{address}/debian", "bookworm", "x86_64")
        return
    why = resolve(["mine"], [f"{address}/simple"], TARGET, Web()).missing["mine"]
    says = {"page": "not a page of a package index", "wheel": "this is not a wheel", "size": "its size is not known"}
    assert says[broken] in why and f"{index.address}/simple/mine/" in why and "s3cret" not in why


def test_a_url_is_shown_without_its_login_and_query() -> None:
    for url in (
        "https://me:s3cret@h/a?key=s3cret",
        " HTTPS://me:s3cret@h/a",
        "https://me:s3/@@h/a",
        "https://:s3?@h/a",
    ):
        assert shown(url) == "https://h/a", "a password with a slash must not be shown either"
    assert shown("me:s3cret@h/a") == "h/a", "a URL without its scheme"
    assert shown("https://h/a@1/b") == "https://h/a@1/b"


@pytest.mark.parametrize("token", ["AbCd1234EfGh5678", "glpat-0123456789abcdefghij", "0" * 39 + "a"])
def test_what_looks_like_a_token_in_a_path_is_not_shown(token: str, index: Index) -> None:
    assert shown(f"https://h/{token}/simple/{token}") == "https://h/****/simple/****"
    assert shown(f"HTTPS://[h/{token}/a") == "HTTPS://[h/****/a"
    for plain in ("https://h/whl/cu126/torch/", "https://h/nightly-packages-all/torch-2.13.0-cp311-x86_64.whl"):
        assert shown(plain) == plain
    with pytest.raises(SiteError, match=r"does not have /\*\*\*\*/simple/mine/$"):
        Web().get(f"{index.address}/{token}/simple/mine/")
    (why,) = resolve(["mine"], [f"http://127.0.0.1:0/{token}"], TARGET, Web()).missing.values()
    assert token not in why
    brought = Brought((f"mine @ https://h/{token}/mine.whl", f"https://h/{token}/other.zip#egg"), ())
    assert set(lines.read(brought, None).others) == {"mine @ https://h/****/mine.whl", "https://h/****/other.zip#egg"}


@pytest.mark.parametrize("url", ["pypi.org/simple", "https://[bad/simple", "https://h:s3cret/simple", "file:///simple"])
def test_an_index_that_is_not_a_url_is_named(url: str) -> None:
    (why,) = resolve(["torch"], [url], TARGET, Web()).missing.values()
    assert why == f"{url}/torch/ is not a URL of a server; write https://HOST/PATH"
    (why,) = resolve(["torch"], ["https://me:s3/cret@h/simple"], TARGET, Web()).missing.values()
    assert why == "https://h/simple/torch/ is not a URL of a server; write https://HOST/PATH, and / as %2F in a login"


@pytest.mark.parametrize("length", ["many", "-5", "", "9" * 5000])
def test_a_wrong_length_does_not_count(length: str, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.wheel("mine", "1.0", beside=False)
    monkeypatch.setattr(Handler, "length", length)
    assert "its size is not known" in resolve(["mine"], [index.simple], TARGET, Web()).missing["mine"]


@pytest.mark.parametrize("need", ["b; python_version ~= '3'", "two words b"])
def test_a_dependency_that_cannot_be_read_is_named(need: str, index: Index) -> None:
    index.wheel("mine", "1.0", need, "dep")
    index.wheel("dep", "1.0")
    found = resolve(["mine"], [index.simple], TARGET, Web())
    assert set(found.wheels) == {"mine", "dep"} and set(found.missing) == {"mine"}
    assert found.missing["mine"].startswith("a dependency is not known: ") and "b" in found.missing["mine"]


def test_a_link_that_is_not_a_url_is_not_a_wheel(index: Index) -> None:
    page = index.folder / "simple/mine/index.html"
    index.wheel("mine", "1.0")
    page.write_text('<a href="https://[bad/mine-2.0-py3-none-any.whl">a</a>' + page.read_text())
    found = resolve(["mine"], [index.simple], TARGET, Web())
    assert str(found.wheels["mine"].version) == "1.0" and not found.missing


def test_debian_packages_come_with_what_they_need() -> None:
    suite = Suite(SUITE)
    base = suite.base()
    assert set(base) == {"base-files", "mawk", "apt"}, "a virtual package is its provider"
    assert set(suite.with_needs(["python3", "python3-venv", "none"], base)) == {"python3", "python3.11", "python3-venv"}
    assert [suite_of(name) for name in ("debian:bookworm-slim", "docker.io/library/debian:sid", "ubuntu:22.04")] == [
        "bookworm", "sid", None,
    ]  # fmt: skip


@pytest.fixture
def image_file(index: Index, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIP_INDEX_URL", index.simple)
    monkeypatch.setattr("os.uname", lambda: type("", (), {"machine": "x86_64", "nodename": "here"}))
    index.wheel("torch", "2.13.0", "dep")
    index.wheel("dep", "1.0")
    (tmp_path / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\ncontainer: {{cache: {home}/images}}\n")
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"name: mine\nbase: {{debootstrap: bookworm, mirror: {index.address}/debian}}\n"
        "system: [no-such-package]\npython: {packages: [torch==2.13.0]}\n"
        "mpi: {from: distribution, version: 5.0.0}\ncuda: {version: '13.0', driver: '580.65', architectures: [sm_90]}\n"
    )
    monkeypatch.chdir(tmp_path)
    return path


def test_the_parts_of_an_image_file_are_listed(image_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "resolve", "mine.yaml", "--site", "./site.yaml"]) == 0
    said = capsys.readouterr().out
    assert "not resolved from here, 2 of 9 parts:\n" in said
    assert "  no-such-package: the suite has no such package\n" in said
    assert "  openmpi-bin: the image file says 5.0.0, the suite has 4.1.4-3+b1\n" in said
    assert "whether torch has kernels for sm_90: the build, in %test" in said
    assert "size: about 0 MiB, estimated from what is downloaded, without no-such-package\n" in said
    assert main(["image", "resolve", "mine.yaml", "--site", "./site.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {part["name"] for part in found["parts"] if part["needed"]} == {"python3.11", "dep"}
    sizes = {part["name"]: part["size_bytes"] for part in found["parts"]}
    assert sizes["debootstrap bookworm"] == 1320 and sizes["python3.11"] == 5000
    known = sum(size for size in sizes.values() if size)
    assert found["estimated_bytes"] == known and found["not_in_the_estimate"] == ["no-such-package"]


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("{docker: 127.0.0.1:9/a/b:1}", "b:1: 127.0.0.1:9 does not report the digest"),
        ("{docker: 127.0.0.1:9/a/b:1}", "torch: the packages of its base are known only inside it"),
        ("{debootstrap: bookworm, mirror: 'http://127.0.0.1:9/debian'}", "127.0.0.1:9 cannot be reached"),
        ("{debootstrap: sid, mirror: 'MIRROR'}", "does not have /debian/dists/sid/main"),
    ],
)
def test_what_cannot_be_looked_up_is_open_and_no_failure(
    base: str, says: str, image_file: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    base = base.replace("MIRROR", f"{index.address}/debian")
    image_file.write_text(f"name: mine\nbase: {base}\nsystem: [curl]\npython: {{packages: [torch==2.13.0]}}\n")
    assert main(["image", "resolve", "mine.yaml", "--site", "./site.yaml"]) == 0
    said = capsys.readouterr().out
    assert says in said and "size: not known\n" in said


@pytest.mark.parametrize(
    ("secrets", "says"),
    [
        ("PIP_INDEX_URL: env:OUR_INDEX", ""),
        ("PIP_EXTRA_INDEX_URL: file:index.txt", ""),
        ("PIP_INDEX_URL: env:NOT_SET_ANYWHERE", "the variable NOT_SET_ANYWHERE is not set here"),
        ("PIP_EXTRA_INDEX_URL: file:none", "none: cannot be read"),
        ("PIP_NO_INDEX: env:OUR_INDEX", "only the build knows the indexes of pip: 'secrets.PIP_NO_INDEX'"),
    ],
)
def test_the_indexes_of_the_image_files_secrets_are_queried(
    secrets: str, says: str, image_file: Path, index: Index, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The index of the shell has no torch here; it is queried only if the build queries it, too."""
    (index.folder / "t0ken").mkdir()
    (index.folder / "simple").rename(index.folder / "t0ken/private")
    private = f"{index.address.replace('//', '//me:s3cret@')}/t0ken/private"
    (index.folder / "t0ken/private/dep/dep-1.0-py3-none-any.whl.metadata").unlink()
    (index.folder / "t0ken/private/dep/dep-1.0-py3-none-any.whl").write_bytes(b"no wheel, which a message says")
    monkeypatch.setenv("OUR_INDEX", private)
    (image_file.parent / "index.txt").write_text(f"{private}\n")
    image_file.write_text(f"{image_file.read_text()}secrets: {{{secrets}}}\n")
    asked: list[str] = []
    real = Web.get
    monkeypatch.setattr(Web, "get", lambda web, url, accept="*/*": asked.append(url) or real(web, url, accept))  # type: ignore[func-returns-value]
    assert main(["image", "resolve", "mine.yaml", "--site", "./site.yaml"]) == 0
    said = capsys.readouterr().out
    assert "s3cret" not in said and "t0ken" not in said
    assert says or f"{index.address}****/private/dep/dep-1.0-py3-none-any.whl: this is not a wheel" in said
    assert says in said if says else "\n  torch: " not in said
    pages = {url.partition("/torch")[0] for url in asked if "/torch" in url}
    own = {private} if "secrets.PIP_INDEX" in f"secrets.{secrets}" else {private, index.simple}
    assert pages == (set() if says else own)


def test_requirements_files_are_read_as_pip_reads_them(
    image_file: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in ("1.0", "2.0"):
        index.wheel("limited", version)
    (image_file.parent / "r.txt").write_text(
        "-c limits.txt\n-c https://a.org/limits.txt\n-r more.txt\nlimited \\\n  --hash=sha256:00\n# a comment \\\n"
        "git+ssh://me:s3cret@a.org/b@0123\ndep # why\nwindows; sys_platform == 'win32'\nodd; python_version ~= '3'\n"
    )
    (image_file.parent / "limits.txt").write_text("limited<2\nunused==1\n")
    (image_file.parent / "more.txt").write_text("-r limits-too.txt\n-c limits-too.txt\n")
    (image_file.parent / "limits-too.txt").write_text("torch\n")
    image_file.write_text(image_file.read_text().replace("packages: [torch==2.13.0]", "requirements: r.txt"))
    assert main(["image", "resolve", "mine.yaml", "--site", "./site.yaml", "--json"]) == 0
    parts = [part for part in json.loads(capsys.readouterr().out)["parts"] if part["kind"] == "wheel"]
    assert {part["name"]: part["version"] for part in parts if not part["open"]} == {
        "limited": "1.0", "dep": "1.0", "torch": "2.13.0",
    }  # fmt: skip
    assert {part["name"]: part["open"] for part in parts if part["open"]} == {
        "https://a.org/limits.txt": "only the build reads this file",
        "git+ssh://a.org/b@0123": "it is in no index",
        "odd; python_version ~= '3'": "the condition of 'odd; python_version ~= \"3\"' cannot be evaluated",
    }


@pytest.mark.parametrize(
    ("options", "indexes", "says"),
    [
        ("", ["first", "second"], ""),
        ("--extra-index-url https://a.org/x", ["first", "second", "https://a.org/x"], ""),
        ("-i https://a.org/x --extra-index-url=https://b.org", ["https://a.org/x", "https://b.org"], ""),
        ("-ihttps://a.org/x", ["https://a.org/x"], ""),
        ("--index-url https://${TOKEN}@a.org/x", [], "the index https://a.org/x has a variable"),
        ("--no-index", [], "the requirements have --no-index"),
    ],
)
def test_the_indexes_of_requirements_files_count(options: str, indexes: list[str], says: str) -> None:
    found, why = lines.indexes(Brought((), (("requirements/0.txt", f"a\n{options}\n"),)), ["first", "second"])
    assert found == indexes and why.startswith(says) and bool(why) is bool(says)
