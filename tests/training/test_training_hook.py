"""The communication hook for scripts of a user's own: DDP's gradients, with the bytes of the torus on the wire."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_training_wire import IN_NAMESPACE, RANKS_TIMES_SENT
from training_runs import LIMIT_S, ROOT

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
