# shellcheck shell=bash
# Installing the daemon as a system service, upgrading it and removing it. Sourced by install.sh.
#
#   /opt/onegate/VERSION-DIGEST/   venv, units, documents of one version, made of one checkout
#   /opt/onegate/current           link to the one in use; /opt/onegate/previous, to the one before
#   /opt/onegate/models/           models, which versions share
#   /etc/onegate/onegate.toml      the configuration; written once, then yours
#
# A version is made beside the running one and swapped in by one rename, so that a run that breaks
# off has changed nothing that is in use.

prefix=/opt/onegate
config=/etc/onegate/onegate.toml
commands=/usr/local/bin
accounts=$prefix/accounts # users and groups that were made here, one a line
library=/usr/local/lib # units of software that no package brought: systemd.unit(5)
UNITS="onegate.socket onegate.service onegate-engine.service"
# Ollama's API in front of the gate: installed with it, and started by whoever wants it.
PROXY_UNITS="onegate-ollama-proxy.socket onegate-ollama-proxy.service"
drop_ins=$library/systemd/system/onegate-engine.service.d
nvidia=$drop_ins/nvidia.conf
interpreter=$drop_ins/interpreter.conf

# PrivateIPC= of the units is the youngest thing in them.
NEED_SYSTEMD=248
# A version takes 330 MB and the model 95 MB (measured); the rest is what pip unpacks meanwhile.
NEED_SYSTEM_MB=1000

need_root() { # COMMAND LINE
  [ "$(id -u)" -eq 0 ] || stop 77 "a system service is root's to install and remove: sudo ./install.sh${*:+ $*}"
}

need_systemd() {
  local command version
  for command in systemctl systemd-sysusers systemd-tmpfiles; do
    command -v $command >/dev/null ||
      stop 69 "there is no $command here: without systemd, start .venv/bin/onegated by the init system you have (./install.sh try makes .venv)."
  done
  version=$(systemctl --version | awk 'NR == 1 {sub(/[^0-9].*/, "", $2); print $2}')
  [ "${version:-0}" -ge $NEED_SYSTEMD ] ||
    stop 69 "systemd $version is too old, $NEED_SYSTEMD is needed: use Debian 12, Ubuntu 24.04 or newer."
}

systemd_runs() { [ -d /run/systemd/system ]; } # sd_booted(3); not so in a chroot or a container

# --- One version ----------------------------------------------------------------------------------

# A service sees no home directories, and a plain user must not own what it runs.
python_is_for_services() {
  case $("$1" -c 'import os, sys; print(os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix))') in
    /home/* | *" /home/"* | /root/* | *" /root/"* | /run/user/* | /tmp/* | /var/tmp/*) return 1 ;;
  esac
}

find_system_python() { # sets base_python and base_version
  local candidate answer
  if [ -z "${ONEGATE_PYTHON:-}" ]; then
    # The system's own first: one that stands before it in PATH is likelier to be somebody's.
    for candidate in /usr/bin/python3 /usr/local/bin/python3; do
      answer=$(probe_python "$candidate") || continue
      case $answer in *" "*) continue ;; esac
      base_python=$candidate base_version=$answer
      return
    done
  fi
  find_python
  python_is_for_services "$base_python" ||
    stop 69 "$base_python lies in a home directory, which services can't see: install Python for all (Debian, Ubuntu: sudo apt install python3 python3-venv)."
}

version_name() { # the number, and a digest of everything that the version is made of
  local number digest
  number=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/pyproject.toml")
  digest=$({
    cd "$root" || exit
    find daemon contrib systemd pyproject.toml README.md LICENSE -type f ! -name '*.pyc' -print0 |
      sort -z | xargs -0 sha256sum
    "$base_python" -c 'import sys; print(sys.executable, sys.version)'
    printf '%s\n' "$BASE_EXTRAS"
  } | sha256sum)
  printf '%s-%s\n' "$number" "${digest:0:8}"
}

site_packages() { "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# What a running engine host is made of. While it stays the same, an upgrade leaves the host alone.
engine_digest() { # PLACE
  {
    cd "$(site_packages)" || exit
    find onegate/engines/host onegate/engines/base.py onegate/protocol/content.py \
      onegate/protocol/framing.py onegate/protocol/errors.py onegate/clock.py -name '*.py' -print0 |
      sort -z | xargs -0 sha256sum
    "$python" -m pip list --format=freeze | grep -iE '^(openvino|msgspec|numpy)'
    "$python" --version
    cd "$1/systemd" || exit
    sha256sum onegate-engine onegate-engine.service
  } | sha256sum | cut -d ' ' -f 1
}

model_places() { # shared between versions: a version that has the same model has the same path
  "$python" -m onegate.engines.models requirements | sed "s|^|$prefix/models/|"
}

fetch_models() {
  local place
  for place in $(model_places); do
    [ ! -d "$place" ] || continue
    rm -rf "$place.new"
    install_packages --no-deps --target "$place.new" "${place##*/}"
    mv -T "$place.new" "$place"
  done
}

mend_models() {
  ! "$python" -m onegate.engines.models verify >/dev/null 2>&1 || return 0
  say "A model in $prefix/models is damaged and is fetched again"
  # shellcheck disable=SC2046 # one word per place
  rm -rf $(model_places)
  fetch_models
  "$python" -m onegate.engines.models verify >/dev/null || exit # it has said what is wrong
}

make_version() { # PLACE: does nothing when it is complete already
  local place=$1
  venv=$place/venv python=$place/venv/bin/python
  [ ! -e "$place/engine-digest" ] || return 0 # written last
  [ "$(df -Pm "$prefix" | awk 'NR == 2 {print $4}')" -ge $NEED_SYSTEM_MB ] ||
    stop 69 "$prefix has less than $NEED_SYSTEM_MB MB of free disk: make room and run this again."
  check_venv_module
  say "Making $place with $base_python ($base_version); a minute or two the first time"
  rm -rf "$place"
  mkdir -p "$place/source" "$place/libexec" "$prefix/models"
  "$base_python" -m venv "$venv" ||
    stop 69 "$base_python could not make $venv: mend what it says above and run this again."
  # From a copy, because building leaves files beside the sources.
  tar -C "$root" --exclude='*.pyc' -c pyproject.toml README.md LICENSE daemon contrib | tar -C "$place/source" -x
  install_packages "${place}/source[$BASE_EXTRAS]"
  rm -rf "$place/source"
  fetch_models
  model_places >"$(site_packages)/onegate-models.pth"
  cp -R "$root/systemd" "$root/README.md" "$root/LICENSE" "$root/daemon/onegate/config/CONFIG.md" "$place"
  cp "$root/contrib/ollama-proxy/README.md" "$place/OLLAMA_PROXY.md"
  install -m 0755 "$root/systemd/onegate-engine" "$place/libexec/onegate-engine"
  # Everybody may look, root alone may change.
  chown -R root:root "$place" "$prefix/models"
  chmod -R u=rwX,go=rX "$place" "$prefix/models"
  engine_digest "$place" >"$place/engine-digest.new"
  mv "$place/engine-digest.new" "$place/engine-digest"
}

# --- Around it ------------------------------------------------------------------------------------

put() { # FILE TARGET: sets changed where the target was another one
  cmp -s "$1" "$2" && return
  install -D -m 0644 "$1" "$2"
  changed=yes
}

has_nvidia() {
  local place
  for place in /dev/nvidia0 /dev/nvidiactl /proc/driver/nvidia; do
    [ ! -e "$place" ] || return 0
  done
  return 1
}

# What opens the GPU to the engine's unit, where there is one, and nothing where there is none.
# Changes of an administrator's own are drop-ins below /etc, and stronger.
put_nvidia() {
  if has_nvidia; then
    ! cmp -s "$root/systemd/nvidia.conf" "$nvidia" || return 0
    note_engine
    say "Found: an NVIDIA GPU; $nvidia lets onegate-engine.service open it"
    install -D -m 0644 "$root/systemd/nvidia.conf" "$nvidia"
  elif [ -e "$nvidia" ]; then
    note_engine
    rm_drop_in "$nvidia"
  fi
}

note_engine() { # its host runs in another sandbox from now on; on the disk, should this run break off
  [ -z "$(running_version onegate-engine.service)" ] || : >"$prefix/engine-changed"
}

rm_drop_in() { # FILE
  rm -f "$1"
  rmdir --ignore-fail-on-non-empty "$drop_ins" 2>/dev/null || true # it may have been gone before
}

# --- An engine with an environment of its own -----------------------------------------------------

python_for_engine() { # CONFIG: the interpreter that it names for the engine's service, or nothing
  "$python" -P -c '
import sys
from onegate.config import load
engine = load(sys.argv[1], environ={}).engine
print(engine.python or "" if engine.needs_host else "")' "$1"
}

# The host's own code for that interpreter, apart from what else a version has: its packages are of
# another Python, and its versions of them are not the engine's.
make_engine_path() { # PLACE PYTHON
  local place=$1/engine-path made_for
  made_for=$("$2" -c 'import sys; assert sys.version_info >= (3, 11); print(sys.executable, sys.version)' 2>/dev/null) ||
    stop 69 "engine.python, $2, is no Python of 3.11 or newer: daemon/onegate/engines/TENSORRT_LLM.md says how to make one."
  python_is_for_services "$2" ||
    stop 69 "$2 lies in a home directory, which services can't see: make that environment elsewhere, $TRTLLM_PYTHON for example."
  [ "$(cat "$place/made-for" 2>/dev/null)" != "$made_for" ] || return 0
  rm -rf "$place" "$place.new"
  mkdir "$place.new"
  cp -R "$(site_packages)/onegate" "$place.new"
  "$2" -c 'import msgspec' 2>/dev/null ||
    PIP_PYTHON=$2 install_packages --target "$place.new" "$(sed -n 's/^dependencies = \["\(.*\)"\]$/\1/p' "$root/pyproject.toml")"
  "$2" -m compileall -q "$place.new"
  printf '%s\n' "$made_for" >"$place.new/made-for"
  chown -R root:root "$place.new"
  chmod -R u=rwX,go=rX "$place.new"
  mv -T "$place.new" "$place"
}

put_interpreter() { # PYTHON, or nothing: what the engine's service is started with
  local text
  if [ -n "$1" ]; then
    text="# By install.sh, as engine.python in $config has it; run it again after a change there.
[Service]
Environment=ONEGATE_ENGINE_PYTHON=$1"
    [ "$(cat "$interpreter" 2>/dev/null)" != "$text" ] || return 0
    note_engine
    mkdir -p "$drop_ins"
    printf '%s\n' "$text" >"$interpreter.new"
    mv "$interpreter.new" "$interpreter"
  elif [ -e "$interpreter" ]; then
    note_engine
    rm_drop_in "$interpreter"
  fi
}

check_accounts() { # a login of that name is not the daemon, and must not become it
  local name
  for name in onegate onegate-engine onegate-ollama-proxy; do
    ! getent passwd $name >/dev/null || grep -qsx $name "$accounts" ||
      stop 73 "there is a user '$name' that is not from here: rename it (sudo usermod -l NEW $name) or remove it, and run this again."
  done
}

note_accounts() { # before they are made, so that an interrupted run leaves none that nobody knows
  local name
  for name in onegate-engine onegate onegate-ollama-proxy onegate-clients onegate-admin; do
    getent passwd $name >/dev/null || getent group $name >/dev/null || printf '%s\n' $name >>"$accounts"
  done
}

put_system_files() { # FIRST CONFIGURATION, ENGINE'S PYTHON
  local unit
  for unit in $UNITS; do put "$root/systemd/$unit" "$library/systemd/system/$unit"; done
  for unit in $PROXY_UNITS; do put "$root/contrib/ollama-proxy/systemd/$unit" "$library/systemd/system/$unit"; done
  put_nvidia
  put_interpreter "$2"
  put "$root/systemd/sysusers.d/onegate.conf" "$library/sysusers.d/onegate.conf"
  put "$root/systemd/tmpfiles.d/onegate.conf" "$library/tmpfiles.d/onegate.conf"
  note_accounts
  systemd-sysusers "$library/sysusers.d/onegate.conf" ||
    stop 73 "the users and groups could not be made: mend what it says above and run this again."
  if [ ! -e "$config" ]; then
    install -D -m 0644 "$1" "$config.new"
    mv "$config.new" "$config"
    changed=yes
  fi
}

check_commands() {
  local command
  for command in onegate onegated; do
    { [ ! -e "$commands/$command" ] && [ ! -L "$commands/$command" ]; } || [ "$(readlink "$commands/$command")" = "$prefix/current/venv/bin/$command" ] ||
      stop 73 "$commands/$command is there and is not from here: move it away and run this again."
  done
}

swap() { # NAME: from here on it is the version in use
  local command before
  before=$(readlink "$prefix/current" || true)
  if [ "$before" != "$1" ]; then
    changed=yes
    [ -z "$before" ] || ln -sfn "$before" "$prefix/previous"
    ln -sfn "$1" "$prefix/current.new"
    mv -T "$prefix/current.new" "$prefix/current"
  fi
  for command in onegate onegated; do
    [ -L "$commands/$command" ] || ln -s "$prefix/current/venv/bin/$command" "$commands/$command"
  done
}

running_version() { # UNIT: the version that its process is of, or nothing
  local pid program
  systemd_runs || return 0
  pid=$(systemctl show --property=MainPID --value "$1")
  [ "$pid" != 0 ] && IFS= read -r -d '' program <"/proc/$pid/cmdline" || return 0
  # An engine's own interpreter lies elsewhere, and finds the version by its path.
  case $program in
    "$prefix"/*) ;;
    *) program=$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^PYTHONPATH=//p') ;;
  esac
  program=${program#"$prefix"/}
  printf '%s\n' "${program%%/*}"
}

remove_old_versions() { # the one before stays, to go back to; and one that still runs
  local kept place
  kept=" $(readlink "$prefix/current") $(readlink "$prefix/previous" || true) $(running_version onegate-engine.service) $(running_version onegate.service) "
  for place in "$prefix"/*/venv; do
    place=${place%/venv}
    case $place in "$prefix"/current | "$prefix"/previous) continue ;; esac
    case $kept in *" ${place##*/} "*) ;; *) rm -rf "$place" ;; esac
  done
}

start_services() { # FRESH NAME
  local running
  if ! systemd_runs; then
    [ "$1" != yes ] || systemctl enable --quiet onegate.socket onegate.service
    touch "$prefix/enabled-once"
    say "systemd does not run here, so nothing was started; the next boot does it."
    return 0
  fi
  systemctl daemon-reload
  systemd-tmpfiles --create "$library/tmpfiles.d/onegate.conf"
  [ "$1" != yes ] || systemctl enable --quiet onegate.socket onegate.service
  touch "$prefix/enabled-once"
  running=$(running_version onegate.service)
  # What runs decides, not what this run has changed: the one before may have broken off.
  [ -z "$running" ] || [ "$running" = "$2" ] || changed=yes
  if [ -z "$running" ] && ! systemctl --quiet is-enabled onegate.service; then
    say "onegate.service is disabled and stays so: sudo systemctl enable --now onegate.socket onegate.service"
    return 0
  fi
  systemctl start onegate.socket
  # The daemon first: its socket stays open, and who connects meanwhile is served by the new one.
  if [ -n "$changed" ] && systemctl --quiet is-active onegate.service; then
    systemctl restart onegate.service
  else
    systemctl start onegate.service
  fi || stop 69 "onegate.service did not start: journalctl -u onegate.service -n 20 says why; mend it and run this again."
  if [ -n "$changed" ]; then # it runs only where somebody has started it
    systemctl try-restart onegate-ollama-proxy.service ||
      say "Notice: onegate-ollama-proxy.service did not start again: journalctl -u onegate-ollama-proxy.service -n 20 says why."
  fi
  running=$(running_version onegate-engine.service)
  if [ -n "$running" ] && { [ -e "$prefix/engine-changed" ] || { [ "$running" != "$2" ] &&
    ! cmp -s "$prefix/$running/engine-digest" "$prefix/$2/engine-digest"; }; }; then
    say "The engine has changed; its host is started anew"
    systemctl restart onegate-engine.service
  fi
  rm -f "$prefix/engine-changed"
}

lock_system() {
  mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] ||
    stop 73 "$prefix can't be made or written: is /opt read-only or full? Mend that and run this again."
  exec 8<"$prefix"
  flock -n 8 || { say "Another install.sh is at work; waiting for it." && flock 8; }
}

check_paths() { # of what the engine's service has to see
  local path
  [ "$engine" != ollama ] && [ "$engine" != openai ] || return 0
  for path in "${models[@]}"; do
    case $path in
      /home/* | /root/* | /tmp/* | /var/tmp/*)
        stop 69 "$path lies in a home directory or among temporary files, which services can't see: move it, to /srv/models for example."
        ;;
      /*) [ -e "$path" ] || stop 69 "there is no model at $path: correct --model." ;;
    esac
  done
  [ -z "$python_of_engine" ] || [ -x "$python_of_engine" ] ||
    stop 69 "there is no interpreter at $python_of_engine: daemon/onegate/engines/TENSORRT_LLM.md says how to make its environment."
}

first_config() { # FILE: for an engine that was chosen
  local words
  find_models
  engine_words "${models[@]}"
  [ -z "$python_of_engine" ] || words+=(--python "$python_of_engine")
  "$python" -P -m onegate.config.engine_tables "$root/systemd/onegate.toml" "${words[@]}" >"$1" ||
    stop 78 "an engine can't be configured like that: mend what it says above and run this again."
}

verb_install() {
  local name fresh=yes asked=$* first own_python
  changed=""
  read_engine "$@"
  need_root "$asked"
  need_systemd
  check_platform
  umask 022
  # Compiled as root now, since the services can't write there.
  unset PYTHONPYCACHEPREFIX
  compile=--compile
  find_system_python
  check_commands
  [ ! -e "$prefix/enabled-once" ] || fresh=no
  if [ -e "$config" ]; then
    [ -z "$engine" ] || say "Notice: $config is there already and is kept: the engine is changed in it."
  else
    # shellcheck disable=SC2086 # one word per engine
    choose_engine "the installation" $ENGINES
    check_choice
    check_paths
  fi
  lock_system
  check_accounts
  name=$(version_name)
  make_version "$prefix/$name"
  mend_models
  first=$config
  if [ ! -e "$config" ]; then
    first=$prefix/onegate.toml
    first_config "$first"
  else
    "$venv/bin/onegate" check-config "$config" >/dev/null ||
      stop 78 "this version can't read $config: mend what it says above and run this again; nothing in use was changed."
  fi
  own_python=$(python_for_engine "$first")
  [ -z "$own_python" ] || make_engine_path "$prefix/$name" "$own_python"
  put_system_files "$first" "$own_python"
  rm -f "$prefix/onegate.toml"
  swap "$name"
  start_services $fresh "$name"
  remove_old_versions
  say "onegate $name is installed. Who may use it: sudo usermod -aG onegate-clients ${SUDO_USER:-NAME}"
  say "Then, after a new login: onegate ask \"Why is the sky blue?\""
}

verb_uninstall() {
  local purge="" unit name
  case ${1:-} in
    "") ;;
    --purge) purge=yes ;;
    *) stop 64 "uninstall does not take '$1': see ./install.sh --help." ;;
  esac
  [ $# -le 1 ] || stop 64 "uninstall does not take '$2': see ./install.sh --help."
  need_root uninstall "$@"
  need_systemd
  [ ! -d "$prefix" ] || lock_system
  # By name and the socket first, or a client's next connection would start the daemon again.
  for unit in $PROXY_UNITS $UNITS; do
    [ -e "$library/systemd/system/$unit" ] || continue
    ! systemd_runs || systemctl stop "$unit"
    systemctl disable --quiet "$unit" 2>/dev/null || true # the engine's has nothing to disable
  done
  for unit in $PROXY_UNITS $UNITS; do rm -f "$library/systemd/system/$unit"; done
  rm_drop_in "$nvidia"
  rm_drop_in "$interpreter"
  rm -f "$library/sysusers.d/onegate.conf" "$library/tmpfiles.d/onegate.conf"
  rmdir -p --ignore-fail-on-non-empty "$library/systemd/system" "$library/sysusers.d" \
    "$library/tmpfiles.d" 2>/dev/null || true # they may have been gone before
  if systemd_runs; then
    systemctl daemon-reload
    # shellcheck disable=SC2086 # one word per unit
    systemctl reset-failed $PROXY_UNITS $UNITS 2>/dev/null || true # most of them have not failed
  fi
  for name in onegate onegated; do
    [ "$(readlink "$commands/$name" || true)" != "$prefix/current/venv/bin/$name" ] || rm "$commands/$name"
  done
  for name in $(cat "$accounts" 2>/dev/null); do
    ! getent passwd "$name" >/dev/null || userdel "$name"
    ! getent group "$name" >/dev/null || groupdel "$name"
  done
  rm -rf "$prefix" /run/onegate /run/onegate-engine /var/lib/onegate /var/cache/onegate-engine
  if [ -n "$purge" ]; then
    rm -rf /etc/onegate
    for unit in $PROXY_UNITS $UNITS; do rm -rf "/etc/systemd/system/$unit.d"; done
    say "onegate is removed, and its configuration too."
  elif [ -e /etc/onegate ]; then
    say "onegate is removed. Its configuration is kept in /etc/onegate: sudo ./install.sh uninstall --purge removes it too."
  else
    say "onegate is removed."
  fi
}
