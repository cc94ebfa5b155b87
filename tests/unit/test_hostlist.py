"""Host lists written and read back: exactly, in order, with repeats."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments
from torusrun.orchestrator.place.hosts.hostlist import expand, fold

hosts = st.from_regex(r"[a-z]{0,3}[0-9]{1,4}[a-z.-]{0,3}|[a-z]{1,5}", fullmatch=True)
runs = st.tuples(st.sampled_from(["n", "g", "r1-n"]), st.integers(0, 2000), st.integers(1, 40), st.integers(1, 5)).map(
    lambda run: [f"{run[0]}{number:0{run[3]}}" for number in range(run[1], run[1] + run[2])]
)


@given(st.lists(hosts | runs, min_size=1, max_size=12))
def test_folding_is_the_inverse_of_expanding(parts: list[str | list[str]]) -> None:
    names = [name for part in parts for name in (part if isinstance(part, list) else [part])]
    assert expand(fold(names)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]), ("n[3,1]", ["n3", "n1"]), ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]), ("n[1,1]", ["n1", "n1"]),
        ("login,g0001,h2-x", ["login", "g0001", "h2-x"]),
    ],
)  # fmt: skip
def test_lists_are_as_slurm_writes_them(text: str, names: list[str]) -> None:
    assert fold(names) == text


def test_many_hosts_are_folded_and_expanded_and_a_name_with_brackets_is_refused() -> None:
    assert fold([f"g{i:06}" for i in range(100_000)]) == "g[000000-099999]"
    with pytest.raises(SiteError, match="cannot be written in a host list"):
        fold(["n1", "n[2]"])
    assert expand("r[1-2]n[08-09]x") == ["r1n08x", "r1n09x", "r2n08x", "r2n09x"]
    assert len(expand("n[1-1000][1-1000]")) == 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999999999]", "n[0-9][0-9][0-9][0-9][0-9][0-9][0-9]", "n[1-999999999999999999]",
        "n[1-500000],m[1-500001]", "n[1-1000,1-1000][1-1000]", "a" + "[1-2]" * 2000,
    ],
)  # fmt: skip
def test_a_list_of_too_many_hosts_is_refused_before_it_is_made(text: str) -> None:
    with pytest.raises(SiteError, match="more than 1000000 hosts"):
        expand(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n[\u0661-\u0663]", "not a host list"), ("n[1-\u0663]", "not a host list"), ("n[3-1]", "at '3-1'"),
        ("n[" + "9" * 400 + "]", "not a host list"), ("n[" + "9" * 19 + "]", "not a host list"),
        ("n[1_0]", "not a host list"), ("n[]", "not a host list"), ("n[1-2-3]", "at '1-2-3'"), ("n[,]", "at ''"),
        ("n" * 300 + "[1-2]", "more than 253 characters"), ("[1]" * 5000, "more than 253 characters"),
        ("n[1", "not a host list"), ("n[[1]]", "not a host list"), ("n]", "not a host list"), ("", "not a host list"),
    ],
)  # fmt: skip
def test_text_that_is_no_host_list_gets_a_short_error(text: str, says: str) -> None:
    with pytest.raises(SiteError, match=re.escape(says)) as told:
        expand(text)
    assert len(str(told.value)) < 600


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"# nodes\nn01 slots=8\nn02 slots=8 max-slots=8  # rack B\n\nn03 slots = 8\n", "n01 n02 n03"),
        (b"n01:8\nn02:8 binding=user:0\nn[03-04]:8\n", "n01 n02 n03 n04"),
        (b"alice@192.168.1.10 slots=2\nroot@worker-1 slots=1\n", "192.168.1.10 worker-1"),
        (b"g1.x.org\n" * 4 + b"g2.x.org\n" * 4 + b"g1.x.org\n", "g1.x.org g2.x.org"),
        (b"gpu-a02 4 gpu.q@gpu-a02 UNDEFINED\ngpu-a01 4 gpu.q@gpu-a01 0,0:0,1\n", "gpu-a02 gpu-a01"),
        (b"hostA 2 hostB 4\n", "hostA hostB"),
        (b"b24-[1-2], b25-[1,4]\nn1 n2,n3 ,\n", "b24-1 b24-2 b25-1 b25-4 n1 n2 n3"),
        (b"\xef\xbb\xbfn1\r\nn2\r\n", "n1 n2"),
        ("n1\r\nn2\r\n".encode("utf-16"), "n1 n2"),
        (b"cn[001-008/3]\nl01,l3\na001,a2\nn[9-11]\n", "cn001 cn004 cn007 l01 l3 a001 a2 n9 n10 n11"),
        (b"fe80::1\n10.0.0.1:4\n", "fe80::1 10.0.0.1"),
        (b"n1g[0010,0011],n2g0005\n", "n1g0010 n1g0011 n2g0005"),
    ],
)
def test_hosts_of_the_files_of_launchers_and_schedulers(content: bytes, names: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(content)
    assert shared_arguments.hosts(f"{tmp_path}/hosts") == names.split()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"n1\n\nn[1-99999999999]\n", ":3: a host list of more than 1000000 hosts"),
        (b"n[1-999999]\n" * 3, ":2: a host list of more than 1000000 hosts"),
        (b"n1\nn[2\n", ":2: not a host list"),
        (b"# all\n@racks\n", ":2: '@racks' is not the name of a host"),
        (b"^n1\n", ":1: '^n1' is not the name of a host"),
        (b"+n1\n", ":1: '+n1' is not the name of a host"),
        (b"[gpu]\nn1\n", ":1: not a host list: '[gpu]'"),
        (b"- n1\n", ":1: '-' is not the name of a host"),
        (b"n1\n10.0.0.2 n2 n2.x.org\n", ":2: '10.0.0.2 n2 n2.x.org' is an address with its names"),
        (b"n1\nslots=4\n", ":2: 'slots=4' has no host before it"),
        (b"SLURM_JOB_NODELIST=n[1-3]\nn9\n", ":1: 'SLURM_JOB_NODELIST=n[1-3]' has no host before it"),
        (b"8 n1\n", ":1: '8' is a number where a host should be"),
        (b"n1/0*4+n2/0*4\n", ":1: 'n1/0*4+n2/0*4' is not the name of a host"),
        (b"n1\nn[1-8]!n3\n", ":2: 'n1!n3' is not the name of a host"),
        (b"n[1-010]\n", ":1: the numbers of '1-010' have different widths"),
        ("n1\nbüro\n".encode(), ":2: 'büro' is not the name of a host"),
        (b"n\xff\n", "not UTF-8 text (byte 1)"),
        (b" \n", "it has no hosts"),
    ],
)
def test_an_error_in_a_file_of_hosts_names_the_line(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(content)
    with pytest.raises(UserError, match=re.escape(f"--hosts {tmp_path}/hosts")) as told:
        shared_arguments.hosts(f"{tmp_path}/hosts")
    assert says in str(told.value)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "a\udcff", "~nosuchuser/hosts", "/dev/zero", "pipe", "."])
def test_a_file_of_hosts_that_cannot_be_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(UserError):
        shared_arguments.hosts(name)


def test_hosts_may_come_from_a_pipe(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"n[1-3]\n")
    os.close(theirs)
    assert shared_arguments.hosts(f"/dev/fd/{ours}") == ["n1", "n2", "n3"]
    os.close(ours)
