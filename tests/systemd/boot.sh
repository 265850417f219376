#!/usr/bin/env bash
# boot.sh CHECKOUT WHEELS OUT PYTHON: boots a copy of this machine and runs the probes in it.
#
# To be started in a mount namespace of its own (unshare --mount --propagation private) as root.
# PID 1 of the copy is systemd. Its disk is this machine's, read-only, under a layer in memory that
# goes away with the namespace; it has no network, its own process numbers, and a cgroup below ours.
# OUT gets junit.xml, ended.jsonl, console.log, journal.log and measured.txt.
#
#   CHECKOUT  copied to /srv/onegate, without its history and what is made in it
#   WHEELS    packages for pip, to be seen as /srv/wheels
#   PYTHON    an interpreter that has pytest; it and its .venv keep their path
set -euo pipefail
checkout=$1 wheels=$2 out=$3 python=$4
venv=$(dirname "$(dirname "$python")")

layer=$(mktemp -d /tmp/onegate-boot-XXXXXX)
mount -t tmpfs -o size=75%,mode=0755 onegate-boot "$layer"
mkdir "$layer"/{upper,work,root}
mount -t overlay onegate-boot -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
machine=$layer/root

# nspawn keeps locks and the like under /run, and leaves some of it behind.
mount -t tmpfs onegate-boot /run

# A view of version 2 alone, whatever mixture the host has; in a branch of its own.
mount -t cgroup2 onegate-boot /sys/fs/cgroup
home=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
branch=$home/onegate-boot-$$
mkdir "$branch"
echo $$ >"$branch/cgroup.procs"

clean() {
  echo $$ >"$home/cgroup.procs"
  # Whatever ended this script: nothing of the machine outlives it.
  echo 1 >"$branch/cgroup.kill"
  while grep -q 'populated 1' "$branch/cgroup.events"; do sleep 0.1; done
  find "$branch" -depth -type d -exec rmdir {} \;
  cp "$machine"/srv/results/* "$out" 2>/dev/null || true # it may not have got that far
  umount -R "$machine" "$layer"
  rmdir "$layer"
}
trap clean EXIT
trap 'exit 124' TERM # out of time: what the probes have said so far is kept

# What the host has of an installation.
"$(dirname "$0")/fresh.sh" "$machine"
mkdir -p "$machine/srv/onegate" "$machine/srv/results"
tar -C "$checkout" --exclude=.git --exclude=.venv --exclude=node_modules --exclude=__pycache__ -c . |
  tar -C "$machine/srv/onegate" -x --no-same-owner
cat >"$machine/etc/systemd/system/onegate-probes.service" <<UNIT
[Unit]
Description=The probes of tests/systemd
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
WorkingDirectory=/srv/onegate
Environment=PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/wheels PIP_CONFIG_FILE=/dev/null PYTHONDONTWRITEBYTECODE=1
Environment=ONEGATE_TIMEOUT_FACTOR=${ONEGATE_TIMEOUT_FACTOR:-1} CI=${CI:-} LANG=C.UTF-8 HOME=/root
ExecStart=$python -m pytest -v ${ONEGATE_BOOT_PYTEST:-} -p no:cacheprovider -o python_files=probe_*.py --junitxml=/srv/results/junit.xml tests/systemd/probes
ExecStopPost=/bin/sh -c 'journalctl --no-hostname -o short-monotonic >/srv/results/journal.log'
ExecStopPost=/bin/sync
StandardOutput=file:/srv/results/probes.log
StandardError=inherit
TimeoutStartSec=infinity
UNIT
mkdir -p "$machine/etc/systemd/system/multi-user.target.wants"
ln -sf ../onegate-probes.service "$machine/etc/systemd/system/multi-user.target.wants/"

systemd-nspawn --quiet --keep-unit --register=no --private-network --boot --console=pipe \
  --directory="$machine" --machine=onegate-boot --hostname=onegate-boot \
  --resolv-conf=off --timezone=off --link-journal=no \
  --bind-ro="$wheels:/srv/wheels" --bind-ro="$venv" \
  -- systemd.unit=multi-user.target systemd.firstboot=off </dev/null >"$out/console.log" 2>&1 &
wait $! # a signal ends the waiting, where it would wait for a command in the foreground
