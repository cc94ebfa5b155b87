"""Shows how to write a text that should be a list: `command: python x.py` as `[python, x.py]`."""

from __future__ import annotations

import re
import shlex
from typing import Any, get_args

import yaml

from torusrun.orchestrator.spec.kinds import ARGUMENT, SHELL, Kind

OF_A_SHELL = re.compile(r"[$`|&;<>*?~]")  # special characters of a shell
MOST_TEXT = 1000  # longest text that a message shows as a list


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
