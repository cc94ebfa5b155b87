"""Verbs as a user types them, and what they print; short names of pytest's types."""

import pytest

from torusrun.orchestrator.base.errors import USER_MISTAKE
from torusrun.orchestrator.cli.main import main

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def prints(capsys: Capsys, *words: str) -> str:
    """What a verb that succeeds writes to its output."""
    assert main([*words]) == 0
    return capsys.readouterr().out


def refuses(capsys: Capsys, *words: str) -> str:
    """What a verb that its user's mistake ends writes to its errors."""
    assert main([*words]) == USER_MISTAKE
    return capsys.readouterr().err
