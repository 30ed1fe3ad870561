#!/usr/bin/env bash
# Sets up .venv and runs the main job, RMSNorm and softmax, on a bare machine; arguments go to the example.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
install '.[cpu]'
exec .venv/bin/python examples/rmsnorm_softmax.py "$@"
