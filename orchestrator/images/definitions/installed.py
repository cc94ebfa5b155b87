"""Prints the packages of an image as JSON. It runs inside the image, whose Python gets it as text (`python -c`).

Like the probe, it needs only the standard library of Python 3.8 or newer.
"""

import json
import subprocess
import sys
from importlib import metadata


def system_packages() -> list:  # type: ignore[type-arg]
    """[name, version, architecture] of every package that dpkg lists; [] without dpkg."""
    form = "${db:Status-Status} ${Package} ${Version} ${Architecture}\\n"
    try:
        listed = subprocess.run(["dpkg-query", "-W", "-f", form], stdout=subprocess.PIPE, check=False).stdout.decode()
    except OSError:
        return []
    return sorted(line.split()[1:] for line in listed.splitlines() if line.startswith("installed "))


def python_packages() -> list:  # type: ignore[type-arg]
    """[name, version, URL of its source] of every package that this Python can import."""
    packages = {}
    for distribution in metadata.distributions():
        direct = distribution.read_text("direct_url.json")
        name = distribution.metadata["Name"]
        if name and name.lower() not in packages:
            packages[name.lower()] = [name, distribution.version, json.loads(direct).get("url", "") if direct else ""]
    return [packages[name] for name in sorted(packages)]


def pip_reports(path: str) -> list:  # type: ignore[type-arg]
    """pip's reports on all archives that it installed, the first call first."""
    try:
        with open(path, encoding="utf-8") as lines:
            return [entry for line in lines for entry in json.loads(line)]
    except OSError:
        return []


def distribution() -> str:
    """The distribution, as in debian-12; '' if it is unknown."""
    try:
        with open("/etc/os-release", encoding="utf-8") as lines:
            pairs = [line.strip().partition("=") for line in lines]
    except OSError:
        return ""
    known = {name: value.strip("\"'") for name, _, value in pairs}
    return "-".join(known[name] for name in ("ID", "VERSION_ID") if name in known)


if __name__ == "__main__":
    report = {
        "distribution": distribution(),
        "system": system_packages(),
        "python": python_packages(),
        "pip": pip_reports(sys.argv[1]),
    }
    print("TORUSRUN-INSTALLED " + json.dumps(report))
