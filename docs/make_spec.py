"""Write docs/reference/spec.md from the dataclasses of the files: `python docs/make_spec.py`; a test compares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torusrun.orchestrator.images.definitions.image_file import Base, ImageFile
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.write import as_written, schema

HEAD = """# Every key

Made by `python docs/make_spec.py` from the code that reads the files. Durations are written 90s, 10m, 1h30m, 2d or
HH:MM:SS, sizes 512MiB, 60GiB or 60GB, grids X, XxY or XxYxZ. `torusrun schema run` and `torusrun schema site` print
the first two as JSON schema.
"""


def table(title: str, rows: list[str]) -> str:
    return "\n".join([f"\n## {title}\n\n| key | meaning | default |\n|---|---|---|", *rows]) + "\n"


def _without(rows: list[str], known: list[str]) -> list[str]:
    """The rows that are not `known`, and one row that names the sections of the others."""
    sections = dict.fromkeys(row.split("`")[1].partition(".")[0] for row in rows if row in known)
    named = ", ".join(f"`{section}.KEY`" for section in sections)
    return [*(row for row in rows if row not in known), f"| {named} | as in a run, for all runs of the site |  |"]


def _rows(prefix: str, described: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    others = described["additionalProperties"]
    rows = [f"| `{prefix}KEY` | {others['description']} |  |"] if others else []
    for key, value in described["properties"].items():
        inner = value.get("anyOf", [value])[0]
        if "properties" in inner and isinstance(defaults.get(key), dict):
            rows += _rows(f"{prefix}{key}.", inner, defaults[key])
            continue
        default = "required" if key in described["required"] else _default(defaults.get(key))
        rows.append(f"| `{prefix}{key}` | {value['description']}{_choices(value)} | {default} |")
        # A record that may be left out, or a list of them: its own keys follow.
        if "properties" in inner:
            rows += _rows(f"{prefix}{key}.", inner, {})
        elif "properties" in (named := value.get("additionalProperties") or {}):
            rows += _rows(f"{prefix}{key}.NAME.", named, {})
        elif "properties" in value.get("items", {}):
            rows += _rows(f"{prefix}{key}[].", value["items"], {})
    return rows


def _choices(value: dict[str, Any]) -> str:
    """The possible values, unless the description has them."""
    first, *others = value.get("anyOf", [value])
    choices = [
        *first.get("enum", []),
        *(["package.module:function"] if any("pattern" in each for each in others) else []),
    ]
    return f": {', '.join(choices)}" if choices and ": " not in value["description"] else ""


def _default(value: Any) -> str:
    if value is None or value in ({}, []):
        return ""
    return f"`{value}`".replace(".000000s", "s")


def text() -> str:
    run = _rows("", schema(RunSpec, "run"), as_written(RunSpec(name="x", site="x")))
    site = _rows("", schema(Site, "site"), as_written(Site(scheduler="local", launcher="spawn")))
    image = _rows("", schema(ImageFile, "image file"), as_written(ImageFile(name="x", base=Base())))
    return HEAD + table("A run", run) + table("A site", _without(site, run)) + table("An image file", image)


if __name__ == "__main__":
    (Path(__file__).parent / "reference" / "spec.md").write_text(text())
