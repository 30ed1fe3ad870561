# Sourced by the scripts beside it, in the checkout's root: makes .venv if it is missing, and defines `install`.
# PYTHON names the interpreter to make it with (3.11 or later); by default the first suitable one on PATH.

is_suitable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

make_venv() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13 python}; do
    is_suitable "$candidate" || continue
    "$candidate" -m venv .venv && return
    rm -rf .venv
  done
  echo "this needs Python 3.11 or later with its venv module (Debian: apt-get install python3.11-venv)" >&2
  return 1
}

[ -x .venv/bin/pip ] || make_venv

install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }
