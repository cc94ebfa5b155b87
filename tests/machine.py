"""What this machine can do. A test that needs more is marked `needs`: it is skipped, and says why.

A user's number proves nothing: root in a container may have no rights. A child tries each, and leaves nothing.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys

GIVES_AWAY = (
    'file=$(mktemp) && trap "rm -f $file" EXIT && chown 65534:65534 "$file" && '
    "setpriv --reuid=65534 --regid=65534 --clear-groups true"
)
READS = 'file=$(mktemp) && trap "rm -f $file" EXIT && chmod 0 "$file" && cat "$file"'
MOUNTS = "mount -t tmpfs none /tmp && mount --bind /tmp /tmp"
BRIDGES = "import fcntl, socket; fcntl.ioctl(socket.socket(), 0x89A0, b'torusrun\\0')"  # SIOCBRADDBR; ip may be missing
LISTS = """
import os, struct, tempfile
entries = [(1, 7, -1), (2, 7, 65534), (4, 0, -1), (16, 7, -1), (32, 0, -1)]
with tempfile.TemporaryDirectory() as folder:
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *one) for one in entries)
    os.setxattr(folder, "system.posix_acl_access", content)
"""
# Root's confines itself to a folder of the system.
SSHD = (
    'PATH=$PATH:/usr/sbin; command -v ssh sshd > /dev/null || { echo "ssh and sshd are not installed" >&2; exit 1; }; '
    'test "$(id -u)" != 0 || { test -d /run/sshd && chroot / true; }'
)
ABILITIES = {
    "users": ("become another user and give files away", ["sh", "-c", GIVES_AWAY]),
    "read": ("read every file, whatever its mode", ["sh", "-c", READS]),
    "lists": ("give access lists to folders", [sys.executable, "-c", LISTS]),
    "mount": ("mount file systems", ["unshare", "--mount", "sh", "-c", MOUNTS]),
    "sshd": ("start an sshd", ["sh", "-c", SSHD]),
    "network": ("make networks in namespaces", ["unshare", "--net", sys.executable, "-c", BRIDGES]),
}


def why_not(*needs: str) -> str | None:
    """The reason why this process may not do one of these, each named in ABILITIES; None if it may do all."""
    return next(filter(None, map(_why_not, needs)), None)


@functools.cache
def _why_not(need: str) -> str | None:
    what, argv = ABILITIES[need]
    try:
        tried = subprocess.run(argv, text=True, capture_output=True, timeout=30, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot {what} here: {error}"
    lines = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
    why = lines[-1 if lines[0].startswith("Traceback") else 0]
    return f"cannot {what} here: {why}" if tried.returncode else None
