"""Golden text: files hold what was made once. Of texts that are much alike one is kept whole, and how others differ."""

import difflib
import os
from pathlib import Path


def assert_golden(golden: Path, text: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), "if the change is meant, run once with UPDATE_GOLDEN=1 and read the diff"


def differences(text: str, whole: str) -> str:
    """The patch without context that makes `text` of `whole`."""
    lines = difflib.unified_diff(whole.split("\n"), text.split("\n"), n=0, lineterm="")
    return "".join(f"{line}\n" for line in [*lines][2:])
