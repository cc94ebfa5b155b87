#!/bin/sh
# Process 1 of a node: NAME ROOT. Already in its own net, uts, ipc, mount and pid namespaces.
set -eu
hostname "$1"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount --bind "$2/etc/hosts" /etc/hosts
slurmd -D -N "$1" &
# Not exec: process 1 must also reap what the job steps leave behind.
wait
