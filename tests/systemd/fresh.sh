#!/usr/bin/env bash
# fresh.sh ROOT: takes everything of an installation of onegate away below ROOT, the copy of a
# machine, whoever has put it there; so that the copy is one that has never seen it.
set -euo pipefail
root=${1:?}
[ "$(realpath "$root")" != / ] || { echo "fresh.sh: not in / itself" >&2 && exit 64; }

rm -rf "$root"/{opt,etc,run,var/lib,var/log}/onegate "$root"/{run,var/cache}/onegate-engine \
  "$root"/usr/local/bin/onegate{,d}
# Units with their drop-ins and links, users and directories.
for place in etc run usr/lib usr/local/lib lib; do
  for kind in systemd sysusers.d tmpfiles.d; do
    [ ! -d "$root/$place/$kind" ] ||
      find "$root/$place/$kind" -depth \( -name 'onegate.*' -o -name 'onegate-*' \) -exec rm -rf {} +
  done
done
# Its users and groups, and their places in other groups.
for database in passwd group shadow gshadow; do
  file=$root/etc/$database
  [ ! -e "$file" ] || sed -E -i -e '/^onegate(-engine|-clients|-admin)?:/d' \
    -e ':again; s/([:,])onegate(-engine)?(,|$)/\1/; t again; s/,$//' "$file"
done
