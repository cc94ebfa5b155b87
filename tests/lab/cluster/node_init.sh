#!/bin/sh
# Process 1 of a node: NAME ROOT. Already in its own net, uts, ipc, mount and pid namespaces.
set -eu
hostname "$1"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount --bind "$2/etc/hosts" /etc/hosts
for script in "$2"/boot.d/*.sh; do
  if [ -e "$script" ]; then sh "$script" "$1" & fi
done
touch "$2/run/$1.booted"
# Not exec: process 1 must also reap what the jobs leave behind.
sleep infinity &
wait
