#!/usr/bin/env bash
# Asks a question while ten batch jobs run, without classes and with them: contrib/ollama-proxy/demo.sh
#
# Before an Ollama of your own: contrib/ollama-proxy/demo.sh --ollama http://127.0.0.1:11434 --model NAME
# Without one it takes the small model that ./install.sh try has installed. A private gate and a private
# proxy are started for it, on ports and sockets of their own, and are gone at its end.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd -P)
python=$root/.venv/bin/python
if ! "$python" -c 'import onegate_ollama_proxy.demo' 2>/dev/null; then
  printf 'demo.sh: %s\n' "onegate is not installed in this checkout: type ./install.sh try" >&2
  exit 69
fi
exec "$python" -m onegate_ollama_proxy.demo "$@"
