#!/usr/bin/env bash
# Sets up .venv and runs the main job on a bare machine: RMSNorm and softmax on arrays of NumPy, PyTorch and JAX, then an
# image filter that saves PNGs in out/.  Arguments, such as `--device cpu`, go to both.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
install '.[demo]'
.venv/bin/python examples/rmsnorm_softmax.py "$@"
.venv/bin/python examples/image_filter.py "$@"
