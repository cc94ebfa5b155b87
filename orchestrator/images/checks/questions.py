"""Query an image with its own shell: its C library, its MPI, its program, and libibverbs.

The script needs only a POSIX shell, so it also works in images without Python.
"""

from __future__ import annotations

from collections.abc import Sequence

# $1 is the first word of a command ('' for none), $2... are folders that may have the host's MPI.
SCRIPT = r"""
PATH=$PATH:/usr/sbin:/sbin
ask() { printf '\nTORUSRUN-ASKED %s\n' "$1"; shift; "$@" 2>&1; printf '\nTORUSRUN-ANSWERED %s\n' "$?"; }
file_of() (  # not `command -v`, to which a shell may know a program that is no file
  case $1 in /*) folders=/ ;; */*) folders=$PWD ;; *) folders=$PATH ;; esac
  set -f
  IFS=:
  for folder in $folders; do
    file=${folder%/}/${1#/}
    if [ -f "$file" ] && [ -x "$file" ]; then printf '%s\n' "$file"; return; fi
  done
  return 127
)
program() { found=$(file_of "$1") || return 127; printf '%s\n' "$found"; ldd "$found"; }
bound() {
  for name in libmpi.so.[0-9]* libmpi.so libmpich.so.[0-9]*; do
    for library in "$1"/$name "$1"/lib/$name "$1"/lib64/$name "$1"/lib/release/$name; do
      if [ -e "$library" ]; then printf '%s\n' "$library"; ldd "$library"; return; fi
    done
  done
  return 127
}
verbs() {
  IFS=:
  for folder in ${LD_LIBRARY_PATH:-} /usr/local/lib /lib/*-linux-gnu /usr/lib/*-linux-gnu /lib64 /usr/lib64 /lib; do
    library=$folder/libibverbs.so.1
    if [ -e "$library" ]; then printf '%s\n' "$library"; ldd "$library"; return; fi
  done
  return 127
}
providers() { ls /etc/libibverbs.d /usr/etc/libibverbs.d /usr/lib/*/libibverbs /usr/lib64/libibverbs 2> /dev/null; }
compat() { ls /usr/local/cuda*/compat/libcuda.so.* /usr/local/cuda*/compat/lib*/libcuda.so.* 2> /dev/null; }
ask glibc ldd --version
ask openmpi ompi_info --parsable
ask mpich mpichversion
ask mpirun mpirun --version
(ask verbs verbs)
ask providers eval 'providers; true'
ask compat eval 'compat; true'
ask python command -v python3
if [ -n "$1" ]; then ask program program "$1"; fi
shift
for folder; do ask "bound $folder" bound "$folder"; done
"""


def script(program: str, folders: Sequence[str]) -> list[str]:
    """The command that queries an image about the first word of a command and the MPI in these folders of the image."""
    return ["/bin/sh", "-c", SCRIPT, "torusrun", program, *folders]
