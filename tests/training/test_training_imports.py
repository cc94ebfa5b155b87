"""What the login node may import does not load torch."""

from __future__ import annotations

import subprocess
import sys

from training_runs import ROOT

WITHOUT_TORCH = [
    "torusrun.training",
    "torusrun.training.config",
    "torusrun.training.reporting.exits",
    "torusrun.training.reporting.metrics",
    "torusrun.training.checkpoint.manifest",
    "torusrun.training.data.order",
    "torusrun.training.data.digits",
    "torusrun.training.data.image_files",
    "torusrun.training.data.pack",
    "torusrun.training.data.synthetic",
    "torusrun.training.data.view",
    "torusrun.training.models.resnet_small",
    "torusrun.training.recipe.build",
    "torusrun.training.recipe.protocols",
    "torusrun.training.recipe.train",
    "torusrun.training.schedule.learning_rate",
    "torusrun.training.__main__",
]


def test_no_torch_on_the_login_node() -> None:
    loaded = "[name for name in ('torch', 'numpy') if name in sys.modules]"
    script = f"import sys, {', '.join(WITHOUT_TORCH)}; print({loaded})"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.stdout.strip() == "[]", f"a module of {WITHOUT_TORCH} imports torch: {ended.stdout}{ended.stderr}"
