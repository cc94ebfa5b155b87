"""Removes secrets from records and output: the values of `env`, and what looks like a token, a password or a key."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.run.folder.secret_forms import NAMED, PATTERNS, REMOVED, SHELL_WORD

SHORTEST = 4  # characters of a value that is looked for in text; "1" would be everywhere
ENVIRONMENTS = ("env", "environment")
SOFTWARE = {field.name for field in fields(Software)}


class Cleaner:
    """Removes these variables' values, and all that the patterns find."""

    def __init__(self, variables: Iterable[tuple[str, str]]) -> None:
        known = set(variables)
        forms = {form for _, value in known for form in forms_of(value) if len(form) >= SHORTEST}
        longest_first = sorted(forms, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        names = "|".join(re.escape(name) for name in sorted({name for name, _ in known}))
        self._assigned = re.compile(rf"\b({names})=(?:{SHELL_WORD})?") if names else None

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._assigned:
            text = self._assigned.sub(rf"\1={REMOVED}", text)
        if self._values:
            text = self._values.sub(REMOVED, text)
        for pattern, left in PATTERNS:
            text = pattern.sub(left, text)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            after = [False, *(isinstance(item, str) and _takes_a_secret(item) for item in value)]
            return [REMOVED if hidden else self.value(item) for hidden, item in zip(after, value, strict=False)]
        if isinstance(value, dict):
            return {self.text(key): self._of_key(key, inner) for key, inner in value.items()}
        return value

    def _of_key(self, key: str, value: Any) -> Any:
        if _has_variables(key, value):
            return dict.fromkeys(value, REMOVED)
        if NAMED.search(key) and isinstance(value, str) and value:
            return REMOVED
        return self.value(value)


def masked(value: Any) -> Any:
    """A JSON value of a run, such as its command, without what looks like a secret."""
    return Cleaner(()).value(value)


def _has_variables(key: str, value: Any) -> bool:
    """Whether a key of a JSON value holds variables: `environment` of a run or a site names software."""
    return key in ENVIRONMENTS and isinstance(value, dict) and value.keys() != SOFTWARE


def variables_of(record: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of every variable in the environments of a JSON value, and of every key with a secret's name."""
    if isinstance(record, list):
        for item in record:
            yield from variables_of(item)
    elif isinstance(record, dict):
        for key, value in record.items():
            if _has_variables(key, value):
                yield from ((name, text) for name, text in value.items() if isinstance(text, str))
            elif isinstance(value, str) and NAMED.search(key):
                yield key, value
            else:
                yield from variables_of(value)


def secret_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables with names of secrets, as WANDB_API_KEY: a scheduler may pass them to the ranks."""
    return ((name, value) for name, value in environment.items() if NAMED.search(name))


def forms_of(value: str) -> Iterator[str]:
    """A value as programs, records and scripts write it; of several lines, each one."""
    for part in (value, *(line.strip() for line in value.splitlines())):
        yield from (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
        yield from (repr(part)[1:-1], shlex.quote(part))


def _takes_a_secret(word: str) -> bool:
    """Whether the next word of a command is a secret, as after '--api-key'."""
    return word.startswith("-") and "=" not in word and NAMED.search(word) is not None
