#!/usr/bin/env bash
# Runs everything on a machine with a GPU, a Python that has the frameworks and the build tools, and no network.
# Each step has its own time limit, and every step runs, also after a failed one.  Logs and summary.md go to ${OUT:-out}.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${OUT:-out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
summary=$out/summary.md
failed=0
export XLA_PYTHON_CLIENT_PREALLOCATE=false  # several frameworks share the GPU here

# step NAME SECONDS COMMAND...: log to NAME.log, add a line to the summary.
step() {
  local name=$1 limit=$2 start=$SECONDS code
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null
  code=$?
  [ $code -eq 0 ] || failed=1
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

step install 60 "$python" -m pip install --quiet --no-build-isolation --no-deps -e .
# Serial: these watch streams, memory and the context of the one GPU.
step tests-gpu 200 "$python" -m pytest tests -q -p no:cacheprovider -m gpu
workers=()
has xdist && workers=(-n 8)
step tests-rest 110 "$python" -m pytest tests -q -p no:cacheprovider -p no:benchmark -m "not gpu" --ignore=tests/meta "${workers[@]}"
for example in quickstart rmsnorm_softmax image_filter torch_rmsnorm_training; do
  step "example-$example" 90 "$python" "examples/$example.py" --device cuda --out "$out/examples"
done
[ -e benchmarks/__main__.py ] && step benchmarks 170 "$python" -m benchmarks --out "$out"

for log in example-rmsnorm_softmax example-torch_rmsnorm_training benchmarks; do
  [ -e "$out/$log.log" ] && printf '\n## %s\n\n```text\n%s\n```\n' "$log" "$(tail -n 60 "$out/$log.log")" >>"$summary"
done
for log in tests-gpu tests-rest; do
  printf '\n## %s\n\n```text\n%s\n```\n' "$log" "$(grep -E '^(FAILED|ERROR)|passed|failed' "$out/$log.log" | tail -n 40)" >>"$summary"
done
exit $failed
