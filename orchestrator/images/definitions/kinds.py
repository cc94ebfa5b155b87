"""The kinds of text in an image file. They are strict: the header and labels of a definition have no quoting."""

from __future__ import annotations

from orchestrator.spec.kinds import text_kind

REFERENCE = text_kind(
    "an image reference",
    r"(?!.*(//|:/))[a-z0-9][A-Za-z0-9._:/-]*",
    "write it as debian:bookworm or registry.example.org/name:tag, without docker:// and without the digest",
)
DIGEST = text_kind("a digest", r"sha256:[0-9a-f]{64}", "write sha256: and 64 hexadecimal digits")
SHA256 = text_kind("a SHA-256 checksum", r"[0-9a-f]{64}", "write 64 hexadecimal digits")
SUITE = text_kind("a Debian or Ubuntu suite", r"[a-z][a-z0-9-]*", "write it as bookworm")
URL = text_kind("a URL", r"(https?|file)://[A-Za-z0-9._~:/?&=+@,%-]+", "write it as https://host/folder")
PACKAGE = text_kind(
    "a Debian package",
    r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9.+~:-]+)?",
    "write its name, or name=version",
)
_PYTHON_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9,._-]+\])?"
_PYTHON_SOURCE = r"(git\+(https?|ssh|file)|https?)://[A-Za-z0-9._~:/?&=+@,%#$(){}-]+"
REQUIREMENT = text_kind(
    "a Python package with its exact version",
    rf"{_PYTHON_NAME}==[0-9][A-Za-z0-9.+!_-]*|{_PYTHON_NAME} @ {_PYTHON_SOURCE}|[A-Za-z0-9._~/+-]+\.whl",
    "write it as torch==2.13.0, as NAME @ git+https://host/repository@COMMIT, or as the path of a wheel",
)
SECRET = text_kind(
    "the place of a secret",
    r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f\x7f]+",
    "write env:VARIABLE or file:PATH",
)
VERSION = text_kind("a version", r"[0-9]+(\.[0-9A-Za-z]+)*", "write it as 4.1.6")
ARCHITECTURE = text_kind("a GPU architecture", r"sm_[0-9]{2,3}[a-z]?", "write it as sm_70")
OPTION = text_kind("a configure option", r"--[A-Za-z0-9][A-Za-z0-9=/._,+-]*", "write it as --without-verbs")
# No braces: newer runtimes replace {{ NAME }} anywhere in a definition. No outer spaces: runtimes trim labels.
LABEL_NAME = text_kind("a label's name", r"[A-Za-z0-9][A-Za-z0-9._/-]*", "use letters, digits, '.', '_', '/' and '-'")
LABEL = text_kind(
    "a label",
    r"(?!.*\{\{)(?! )[^\x00-\x1f\x7f\x85\u2028\u2029]+(?<! )",
    "it must be one line, without outer spaces, control characters or '{{'",
)
INSIDE = text_kind(
    "a path inside the image",
    r"(/(?!\.\.?(/|$))[A-Za-z0-9._+@-]+)+",
    "write an absolute path of letters, digits and '._+@-', as in /opt/data/list.txt",
)
