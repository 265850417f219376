#!/usr/bin/env bash
# Says, one a line, what this machine does not allow of what boot.sh does; nothing where it allows
# it all. Needs root, and leaves nothing behind: each attempt is in a mount namespace of its own.
set -euo pipefail

attempt() { # SENTENCE COMMANDS
  unshare --mount --propagation=private sh -ec "$2" >/dev/null 2>&1 || printf '%s\n' "$1"
}

attempt "no mount namespace can be made (unshare --mount)" true
attempt "no tmpfs can be mounted" "mount -t tmpfs none /mnt"
attempt "no overlay of / can be mounted (overlayfs)" "
  mount -t tmpfs none /mnt
  mkdir /mnt/upper /mnt/work /mnt/root
  mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root"
attempt "no cgroup2 can be mounted" "mount -t cgroup2 none /sys/fs/cgroup"
