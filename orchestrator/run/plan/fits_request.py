"""Checks of what a run and its site ask the scheduler for: whether it has words for that."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.keys.load import Loaded
from torusrun.orchestrator.keys.problems import Problem

PLACEHOLDERS = {"gpus": ("{gpus}",), "cpus_per_rank": ("{cpus_per_rank}", "{cpus}")}  # by which an `ask` says a key


def problems(loaded: Loaded) -> Iterator[Problem]:
    """Each part of the request that the scheduler cannot get, at its place in the run's or the site's file."""
    scheduler, asked = schedulers.get(loaded.site.scheduler), loaded.site.request
    for field, key in asked.named():
        value = getattr(asked, field)
        values = [value] if isinstance(value, str) else value if field in ("options", "licenses") else ()
        refuses = scheduler.refuses_option if field == "options" else scheduler.refuses
        reasons = [f"{each!r} {reason}" for each in values if (reason := refuses(each))]
        if reason := _unsaid(loaded, key) or next(iter(reasons), ""):
            is_run = f"request.{key}" in loaded.marks
            yield (loaded.problem if is_run else loaded.site_problem)(f"request.{key}", f"'request.{key}': {reason}")


def _unsaid(loaded: Loaded, key: str) -> str:
    """Why no directive says this key; '' if one does."""
    site = loaded.site
    traits = schedulers.get(site.scheduler).traits
    if key not in traits.says:
        has = f"it has {', '.join(sorted(traits.says))}"
        return f"{site.scheduler} has no request for it ({has}); {traits.instead.get(key, 'leave it out')}"
    by_ask = bool(site.ask) and key in traits.asked_by and f"request.{key}" in loaded.marks
    is_part = bool(site.parts) and site.gpus != site.node.gpus
    if not by_ask or is_part or any(word in text for word in PLACEHOLDERS.get(key, ()) for text in site.ask):
        return ""
    if key == "gpus" and site.gpus == site.node.gpus:
        return ""
    words = " or ".join(PLACEHOLDERS.get(key, ()))
    mend = f"write {words} in its place there, or list 'parts' in the site" if words else "write it there"
    return f"the site asks for its nodes in its own words, which do not have it ('ask'); {mend}"
