"""`torusrun plan --hosts`: what would go where, in words and as JSON; and the order that a job takes."""

import json
import math
import random
from pathlib import Path

import pytest

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.plan.host_order import ordered
from torusrun.orchestrator.run.plan.plan import plan

SITE = """scheduler: slurm
launcher: srun
node: {ranks: 4, gpus: 4, hcas: [mlx5_0, mlx5_1], inter_node: 25GB/s}
topology: {source: names, pattern: 'g(?P<number>[0-9]+)', rack_nodes: 4, uplink: 1/4}
"""
HOSTS = [f"g{number:04}" for number in (1, 2, 3, 5, 6, 7, 8, 9)]  # 3, 4 and 1 of three racks


@pytest.fixture
def files(home: Path, tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(SITE)
    (tmp_path / "run.yaml").write_text("name: torus\nsite: ./site.yaml\nnodes: 8\ngrid: 16x2\ntrain: {batch: 64}\n")
    shuffled = list(HOSTS)
    random.Random(1).shuffle(shuffled)
    (tmp_path / "hosts").write_text("\n".join(shuffled) + "\n")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    assert main(["plan", *map(str, argv)]) == 0
    return capsys.readouterr().out


def test_the_picture_and_the_table(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, files / "run.yaml", "--hosts", files / "hosts")
    assert text.count("  < hottest") == 1 and "uplink of" in text
    assert "proved: no placement of this grid on these hosts is better" in text
    lines = text[text.index("order  ") :].splitlines()[1:7]
    table = {line[:21].strip(): float(line[21:34]) for line in lines}
    ours = table["by the network"]
    assert all(ours <= table[other] for other in ("alphabetical", "random (median)", "by switch"))
    assert table["bound of this grid"] <= ours + 0.01 and table["bound of any scheme"] <= ours + 0.01


def test_as_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(said(capsys, files / "run.yaml", "--hosts", files / "hosts", "--json"))["placement"]
    assert sorted(shown["hosts"]) == HOSTS and shown["optimal"]
    assert {link["name"] for link in shown["links"]} == {*HOSTS, "rack1", "rack2", "rack3"}
    assert {len(link["bytes_per_byte"]) for link in shown["links"]} == {2}
    assert [row["order"] for row in shown["orders"]][:2] == ["by the network", "alphabetical"]
    assert [(each["gpu"], each["hca"]) for each in shown["local_ranks"]] == [
        (0, "mlx5_0"), (1, "mlx5_0"), (2, "mlx5_1"), (3, "mlx5_1")
    ]  # fmt: skip
    assert {math.prod(grid["dims"]) for grid in shown["grids"]} == {32}
    assert json.loads(said(capsys, files / "run.yaml", "--json"))["placement"] is None


def test_the_source_of_the_topology_is_queried_once(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = Path(__file__).parent / "recorded/topology/spartan.topology.txt"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/scontrol").write_text(f"#!/bin/sh\ncat {recorded}\n")
    (tmp_path / "bin/scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (files / "site.yaml").write_text("scheduler: slurm\nlauncher: srun\nnode: {ranks: 4}\ntopology: {source: slurm}\n"
                                     "measured: {models: {resnet-digits: {image_us: 100}}}\n")  # fmt: skip
    (files / "two").write_text("spartan-bm029\nspartan-bm039\n")
    two = ["--set", "nodes=2", "--set", "grid=4x2", "--hosts", files / "two"]
    for verb in ("plan", "predict"):
        process.CALLS.clear()
        assert main([verb, *map(str, [files / "run.yaml", *two])]) == 0
        assert process.CALLS["scontrol"] == 1, f"{verb} asked {process.CALLS['scontrol']} times"
        capsys.readouterr()


def test_hosts_that_are_not_needed_are_spares(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "list").write_text("g[0001-0009]\n")
    assert "spares      g0009" in said(capsys, files / "run.yaml", "--hosts", files / "list")


def test_without_hosts_it_says_when_they_are_placed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ordered by the network when the job knows its hosts" in said(capsys, files / "run.yaml")
    assert "the site has no topology" in said(capsys, files / "run.yaml", "--site", "slurm")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--hosts", "nowhere"], "--hosts nowhere: cannot be read"),
        (["--hosts", "{}/empty"], "it has no hosts"),
        (["--hosts", "{}/few"], "the run takes 8 nodes; --hosts has 2: g[0001-0002]"),
        (["--hosts", "{}/hosts", "--site", "slurm"], "has no topology: write 'topology:' into its file"),
    ],
)
def test_errors_name_what_is_wrong_with_the_hosts(
    files: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    (files / "empty").write_text("\n")
    (files / "few").write_text("g0001\ng0002\n")
    assert main(["plan", str(files / "run.yaml"), *(word.format(files) for word in argv)]) == 2
    assert message in capsys.readouterr().err


def test_a_job_takes_the_order_of_the_network(files: Path) -> None:
    planned = plan(files / "run.yaml")
    scheduled = (files / "hosts").read_text().split()
    found = ordered(planned, scheduled)
    assert found.hosts != tuple(scheduled) and found.plan == planned
    assert found == ordered(planned, scheduled), "every attempt on the same hosts has the same order"
    assert ordered(plan(files / "run.yaml", site="slurm"), scheduled).hosts == tuple(scheduled)
    with pytest.raises(SiteError, match=r"the scheduler allocated 3 hosts \(.*\); the run takes 8"):
        ordered(planned, scheduled[:3])


def test_hosts_keep_their_allocated_names_if_the_topology_has_shorter_ones(files: Path) -> None:
    switches = "{rack1: 'g[0001-0003]', rack2: 'g[0005-0008]', rack3: g0009}"
    site = SITE[: SITE.index("topology")] + f"topology: {{source: switches, switches: {switches}, uplink: 1/4}}\n"
    (files / "site.yaml").write_text(site)
    planned, short = plan(files / "run.yaml"), (files / "hosts").read_text().split()
    found = ordered(planned, [f"{host}.cl.org" for host in short])
    assert not found.unordered and found.hosts == tuple(f"{host}.cl.org" for host in ordered(planned, short).hosts)
