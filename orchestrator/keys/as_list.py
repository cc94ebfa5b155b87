"""Shows how to write a value that should be a list (`command: python x.py` as `[python, x.py]`) or a group of keys."""

from __future__ import annotations

import re
import shlex
from typing import Any, get_args

import yaml

from torusrun.orchestrator.keys.kinds import ARGUMENT, SHELL, Kind

OF_A_SHELL = re.compile(r"[$`|&;<>*?~]")  # special characters of a shell
MOST_TEXT = 1000  # longest text that a message shows as a list

GROUPS = {
    "keep_going": "{attempts: 3}",
    "notify": "{mail: me@example.org}",
    "train": "{model: resnet-digits, epochs: 2}",
    "stop": "{signal: SIGUSR1, before: 5m}",
    "checkpoints": "{folder: checkpoints}",
    "exit_codes": "{later: [75]}",
    "metrics": "{pattern: 'step=(?P<step>\\d+)'}",
    "sweep": "{values: {train.batch: [64, 128]}}",
    "environment": "{venv: ~/venv}",
    "env": "{NAME: value}",
    "node": "{ranks: 4, gpus: 4}",
    "container": "{runtime: apptainer}",
    "topology": "{source: slurm}",
    "preflight": "{enabled: false}",
    "bad_nodes": "{expire: 1h}",
    "base": "{docker: debian:bookworm}",
    "python": "{packages: [numpy==2.1.0]}",
    "mpi": "{from: distribution}",
    "cuda": "{version: '12.4'}",
}


def as_group(path: str) -> str:
    """', as in KEY: {...}' for the dotted key of a group, if it has an example."""
    name = path.rpartition(".")[2]
    return f", as in {name}: {GROUPS[name]}" if name in GROUPS else ""


def as_list(item: Any, node: yaml.Node) -> str:
    """'; write [python, x.py]' for a text that should be a list, if the list is certain."""
    kind = next((extra for extra in get_args(item)[1:] if isinstance(extra, Kind)), None)
    if kind is None or not isinstance(node, yaml.ScalarNode) or len(node.value) > MOST_TEXT:
        return ""
    try:
        words = shlex.split(node.value)
    except ValueError:  # a quote is not closed
        return ""
    if kind is ARGUMENT:
        items = ["sh", "-c", node.value] if OF_A_SHELL.search(node.value) else words
    else:
        items = [node.value] if len(words) == 1 or kind is SHELL else []
    return f"; write {yaml.safe_dump(items, default_flow_style=True, width=10 * MOST_TEXT).strip()}" if items else ""
