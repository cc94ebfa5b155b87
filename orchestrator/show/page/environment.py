"""Where a run comes from and what it ran on: code, image, versions and hosts. No environment variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torusrun.orchestrator.place.hosts.folded import folded
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.training.counted import counted
from torusrun.training.reporting import events

OF_RANKS = {"torch": "torch", "device": "device", "backend": "backend", "cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL",
            "python": "Python"}  # fmt: skip


def environment(facts: RunFacts) -> list[tuple[str, str]]:
    """(what, value) of all that is known."""
    return [(name, facts.shown(text)) for name, text in _facts(facts) if text]


def _facts(facts: RunFacts) -> Iterator[tuple[str, str]]:
    kept = facts.provenance
    yield "code", _code(facts)
    if facts.image:
        yield "image", facts.image.name or facts.image.path
        yield "image SHA-256", facts.image.sha256
        yield "in the image", _versions(facts.image.versions)
    starts = [row for row in facts.rows if row["event"] == events.START]
    if starts:
        trained = {name: starts[-1].get(key) for key, name in OF_RANKS.items()}
        yield "training", ", ".join(f"{name} {value}" for name, value in trained.items() if isinstance(value, str))
    yield "torusrun", _text(kept, "torusrun")
    yield "Python, submitting", _text(kept, "python")
    packages = kept.get("packages")
    yield "packages, submitting", _versions(packages) if isinstance(packages, dict) else ""
    yield "submitted on", ", ".join(filter(None, (_text(kept, "host"), _text(kept, "system"))))
    yield "hosts", folded(facts.view.hosts)
    yield "run folder", facts.view.folder


def _code(facts: RunFacts) -> str:
    """The commit, and what git does not have of the code."""
    git = facts.provenance.get("git")
    if not isinstance(git, dict) or not isinstance(git.get("commit"), str):
        return "no git checkout"
    if git.get("unknown"):
        return f"commit {git['commit']}; git did not report the changes"
    untracked = git.get("untracked")
    parts = [
        f"commit {git['commit']}",
        "with changes, which are in code.diff of the run folder" if facts.has_diff else "",
        counted(len(untracked), "untracked file") if isinstance(untracked, list) and untracked else "",
    ]
    return ", ".join(filter(None, parts)) if any(parts[1:]) else f"{parts[0]}, without changes"


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _versions(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
