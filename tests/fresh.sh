#!/usr/bin/env bash
# Runs the README's three commands, or COMMAND, in a clone inside a minimal Debian on which nobody installed anything.
#   tests/fresh.sh [COMMAND]        as root on Debian; what is not committed is not tried
# The new system shares this machine's kernel and network. It takes over how packages and hosts are found, and nothing else.
set -euo pipefail
repo=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
command=${1:-make demo && make test && make test-labs}
prerequisites=ca-certificates,git,make,python3,python3-pip
if [[ $EUID != 0 ]]; then echo "tests/fresh.sh: only root can make a system: run it as root" >&2; exit 2; fi
if [[ $(git -C "$repo" status --porcelain) ]]; then echo "tests/fresh.sh: changes that are not committed are left out" >&2; fi
command -v debootstrap > /dev/null || { apt-get update -q; apt-get install -qy --no-install-recommends debootstrap; }

system=$(mktemp -d /var/tmp/torusrun-fresh.XXXXXX)
inside=
trap 'kill -9 $inside 2> /dev/null || true; wait; rm -rf --one-file-system "$system"' EXIT
chmod 755 "$system"
debootstrap --variant=minbase --include="$prerequisites" bookworm "$system" > "$system.log" ||
  { tail -n 5 "$system.log" >&2; exit 1; }
rm "$system.log"
git clone -q "file://$repo" "$system/root/clone"
for file in /etc/hosts /etc/resolv.conf /etc/pip.conf "${PIP_CERT:-}" "${SSL_CERT_FILE:-}"; do
  if [[ -f $file ]]; then install -D -m 644 "$file" "$system$file"; fi
done
touch /run/torusrun-{lab,laptop}.lock  # there is one of each in the network that both systems share

environment=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
while IFS= read -r variable; do environment+=("$variable"); done < <(
  env | grep -E '^(CI|TORCH|PYTEST_ADDOPTS|PIP_[A-Z_]+|SSL_CERT_FILE|(https?|no)_proxy)=' || true)

# pivot_root and no chroot: the lab's user makes user namespaces, which a process in a chroot cannot.
export system command
unshare --mount --pid --fork --kill-child bash -euo pipefail -s -- "${environment[@]}" << 'INSIDE' &
mount --bind "$system" "$system"
cd "$system"
for folder in dev sys; do mount --rbind "/$folder" "$folder"; done
mount -t proc proc proc
mount -t tmpfs -o mode=755 run run
mkdir run/lock
for name in lab laptop; do
  touch "run/torusrun-$name.lock"
  mount --bind "/run/torusrun-$name.lock" "run/torusrun-$name.lock"
done
for folder in ${PIP_FIND_LINKS:-}; do
  mkdir -p ".$folder"
  mount --bind -o ro "$folder" ".$folder"
done
mkdir -p mnt/before
pivot_root . mnt/before
umount -l /mnt/before
cd /root/clone
exec env --default-signal=HUP,INT,QUIT -i "$@" bash -euxc "$command"
INSIDE
inside=$!
wait "$inside"
