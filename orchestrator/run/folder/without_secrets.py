"""Removes secrets from records and output: the values of `env`, and what looks like a token, a password or a key."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.run.folder.secret_forms import NAMED, PATTERNS, REMOVED

SHORTEST = 4  # characters of a value that is looked for in text; "1" would be everywhere
ENVIRONMENTS = ("env", "environment")
SOFTWARE = {field.name for field in fields(Software)}


def masked(value: Any) -> Any:
    """A JSON value of a run, such as its command, without what looks like a secret."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        after = [False, *(isinstance(item, str) and _takes_a_secret(item) for item in value)]
        return [REMOVED if hidden else masked(item) for hidden, item in zip(after, value, strict=False)]
    if isinstance(value, dict):
        return {_text(key): _of_key(key, inner) for key, inner in value.items()}
    return value


def _text(text: str) -> str:
    for pattern, left in PATTERNS:
        text = pattern.sub(left, text)
    return text


def _of_key(key: str, value: Any) -> Any:
    if key in ENVIRONMENTS and isinstance(value, dict) and value.keys() != SOFTWARE:  # else it names software
        return dict.fromkeys(value, REMOVED)
    if NAMED.search(key) and isinstance(value, str) and value:
        return REMOVED
    return masked(value)


def forms_of(value: str) -> Iterator[str]:
    """A value as programs, records and scripts write it; of several lines, each one."""
    for part in (value, *(line.strip() for line in value.splitlines())):
        yield from (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
        yield from (repr(part)[1:-1], shlex.quote(part))


def _takes_a_secret(word: str) -> bool:
    """True if the next word of a command is a secret, as after '--api-key'."""
    return word.startswith("-") and "=" not in word and NAMED.search(word) is not None
