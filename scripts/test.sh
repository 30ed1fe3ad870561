#!/usr/bin/env bash
# Sets up .venv with the pinned frameworks and runs all checks, on a bare machine; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
install '.[test,lint]'
PYTHON=.venv/bin/python exec ./check "$@"
