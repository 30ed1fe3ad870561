#!/usr/bin/env bash
# Runs everything on a machine with a GPU, a Python that has the frameworks and the build tools, and no network.
# Each step has its own time limit, and every step runs, also after a failed one.  Logs and summary.md go to ${OUT:-out}.
# Tests and examples run side by side; what watches the whole GPU's memory, and the benchmarks, run alone.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${OUT:-out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
summary=$out/summary.md
rm -f "$out/failed"
export XLA_PYTHON_CLIENT_PREALLOCATE=false  # several frameworks share the GPU here

# step NAME SECONDS COMMAND...: log to NAME.log, add a line to the summary.
step() {
  local name=$1 limit=$2 start=$SECONDS code
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null
  code=$?
  [ $code -eq 0 ] || echo "$name" >>"$out/failed"
  echo "| $name | $([ $code -eq 0 ] && echo ok || echo "**failed ($code)**") | $((SECONDS - start)) s | $(closing_line "$name") |" |
    tee -a "$summary"
}

# The last line that pytest or an example printed, if it fits into a table.
closing_line() { tail -n 1 "$out/$1.log" 2>/dev/null | tr -d '|=' | cut -c1-120; }

versions() {
  "$python" - <<'PY'
import datetime, importlib.metadata as metadata, platform
print("date", datetime.datetime.now(datetime.timezone.utc).date())
print("python", platform.python_version())
for name in ("torch", "jax", "jaxlib", "cupy-cuda13x", "cupy-cuda12x", "numpy", "cuda-bindings", "numba", "triton"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
PY
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
}

has() { "$python" -c "import $1" 2>/dev/null; }

echo "# GPU check" >"$summary"
versions 2>&1 | sed 's/^/- /' | tee -a "$summary"
printf '\n| step | result | time | last line |\n|---|---|---|---|\n' | tee -a "$summary"

run_tests() { # NAME SECONDS ARGUMENTS...
  step "$1" "$2" "$python" -m pytest -q -p no:cacheprovider -p no:benchmark "${@:3}"
}

run_examples() {
  for example in quickstart rmsnorm_softmax image_filter torch_rmsnorm_training; do
    step "example-$example" 120 "$python" "examples/$example.py" --device cuda --out "$out/examples"
  done
}

step install 60 "$python" -m pip install --quiet --no-build-isolation --no-deps -e .
workers=()
has xdist && workers=(-n 6)
run_tests tests-gpu 220 -m gpu tests --ignore=tests/gpu --ignore=tests/torch --ignore=tests/jax &
run_tests tests-torch-gpu 220 -m gpu tests/torch &
run_tests tests-jax-gpu 220 -m gpu tests/jax &
run_tests tests-rest 220 -m "not gpu" tests --ignore=tests/meta "${workers[@]}" &
run_examples &
step build-a-peer 120 "$python" -c "import torch; from benchmarks._peers import torch_extension as make
x = torch.zeros(256, device='cuda'); make(x, x, 0)" &
wait
run_tests tests-gpu-memory 90 -m gpu tests/gpu
step benchmarks 200 "$python" -m benchmarks --out "$out"

for log in example-rmsnorm_softmax example-torch_rmsnorm_training benchmarks; do
  [ -e "$out/$log.log" ] && printf '\n## %s\n\n```text\n%s\n```\n' "$log" "$(tail -n 60 "$out/$log.log")" >>"$summary"
done
for log in tests-gpu tests-torch-gpu tests-jax-gpu tests-rest tests-gpu-memory; do
  printf '\n## %s\n\n```text\n%s\n```\n' "$log" "$(grep -E '^(FAILED|ERROR)|passed|failed' "$out/$log.log" | tail -n 40)" >>"$summary"
done
[ ! -e "$out/failed" ]
