"""What the login node may import does not load torch."""

from __future__ import annotations

import subprocess
import sys

from training_runs import ROOT

WITHOUT_TORCH = [
    "training",
    "training.config",
    "training.reporting.exits",
    "training.reporting.metrics",
    "training.checkpoint.manifest",
    "training.data.order",
    "training.data.digits",
    "training.data.imagefolder",
    "training.data.pack",
    "training.data.synthetic",
    "training.data.tar_shards",
    "training.data.view",
    "training.models.resnet_digits",
    "training.recipe.build",
    "training.recipe.protocols",
    "training.recipe.train",
    "training.schedule.learning_rate",
    "training.__main__",
]


def test_no_torch_on_the_login_node() -> None:
    loaded = "[name for name in ('torch', 'numpy') if name in sys.modules]"
    script = f"import sys, {', '.join(WITHOUT_TORCH)}; print({loaded})"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.stdout.strip() == "[]", f"a module of {WITHOUT_TORCH} imports torch: {ended.stdout}{ended.stderr}"
