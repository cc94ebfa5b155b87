"""The bytes on the wire of the torus, and of the hook for scripts of a user's own, against the kernel's count."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from training_runs import LIMIT_S, ROOT

ELEMENTS = 4 * 1024 * 1024
BUFFER_BYTES = 4 * ELEMENTS
IN_NAMESPACE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
RANKS_TIMES_SENT = {(4, 1): 4 * 2 * 3 / 4, (1, 4): 4 * 2 * 3 / 4, (2, 2): 4 * (2 * 1 / 2 + 2 * 1 / 2 / 2)}
# Of the hybrid, by the hierarchical levels and the ring; to a row's first rank and back, and among those in between.
HYBRID = {
    (4, 1): ([3 + 3, 0, 0], [0, 0, 4 * 2 * 3 / 4]),
    (1, 4): ([0, 4 * 2 * 3 / 4, 0], [0, 0, 4 * 2 * 3 / 4]),
    (2, 2): ([2 * (1 + 1), 2 * 2 * 1 / 2, 0], [0, 0, 4 * 2 * 3 / 4]),
}


@pytest.mark.needs("network", "ip")
@pytest.mark.parametrize("grid", RANKS_TIMES_SENT, ids=["row only", "column only", "2x2"])
def test_the_wire_carries_what_the_formula_says(grid: tuple[int, int], tmp_path: Path) -> None:
    found = json.loads(_run(grid, tmp_path))
    measured = found["torus"]
    formula_bytes = RANKS_TIMES_SENT[grid] * BUFFER_BYTES
    assert measured["counted"] == pytest.approx(formula_bytes), "the ranks' own count does not follow the formula"
    ratio = measured["wire"] / formula_bytes
    assert 0.99 < ratio < 1.05, f"the wire carried {ratio:.3f} times the formula: a phase moves more than its part"
    for kind, levels in zip(("short", "long"), HYBRID[grid], strict=True):
        assert found[kind]["levels"] == pytest.approx([vectors * BUFFER_BYTES for vectors in levels])
        ratio = found[kind]["wire"] / (sum(levels) * BUFFER_BYTES)
        most = 1.5 if kind == "short" else 1.05  # gloo's reduce sends more than a vector of each rank
        assert 0.99 < ratio < most, f"the wire carried {ratio:.3f} times what the {kind} vector needs"


def _run(grid: tuple[int, int], folder: Path) -> str:
    script = str(Path(__file__).with_name("torus_wire.py"))
    command = [*IN_NAMESPACE, sys.executable, script, str(grid[0]), str(grid[1]), str(ELEMENTS), str(folder)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=LIMIT_S)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


PLANTED = 'WHOSE = "the script\'s"\n'


@pytest.mark.needs("network", "ip")
def test_a_ddp_script_gets_its_gradients_by_the_torus(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text(PLANTED)
    script = tmp_path / "script.py"
    script.write_text(Path(__file__).with_name("hook_wire.py").read_text())
    start = f"for r in 0 1 2 3; do RANK=$r {sys.executable} {script} & done; wait"
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "training" / "entry"),
        "TORUSRUN_GRID": "2x1x2",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29555",  # free: the namespace is new
        "GLOO_SOCKET_IFNAME": "lo",
    }
    said = subprocess.run(
        [*IN_NAMESPACE, "bash", "-c", start], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert said.stdout.strip(), said.stderr
    found = json.loads(said.stdout)
    assert found["worst"] < 1e-5, "the gradients are not DDP's"
    formula_bytes = RANKS_TIMES_SENT[2, 2] * found["bytes"]
    assert found["counted"] == pytest.approx(formula_bytes)
    assert 0.99 < found["wire"] / formula_bytes < 1.05, "the wire does not carry the torus's bytes"
