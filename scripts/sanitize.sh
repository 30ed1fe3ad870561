#!/usr/bin/env bash
# Builds the core with AddressSanitizer and UndefinedBehaviorSanitizer and runs the tests on it, in a venv of its own.
# PYTHON names an interpreter that has what [test] and the build need; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python}" -m venv "$folder/venv"
python=$folder/venv/bin/python
site() { "$1" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
site "${PYTHON:-python}" >"$(site "$python")/parent.pth"  # its packages, but not its own copy of ours
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  -C build-dir="$folder/build" -C cmake.define.TFI_SANITIZE=address,undefined .
"$python" -c 'import tenferro_interop._core as core; print("testing", core.__file__)' 2>/dev/null || true

runtime=$(for name in libasan.so libubsan.so; do gcc -print-file-name=$name; done | paste -sd:)
# Its dlopen is the sanitizer's, which does not know where NVRTC looks for its second library.
nvrtc=$("$python" -c 'import glob, sys; print(*{f.rpartition("/")[0] for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/libnvrtc.so*")}, sep=":")')
# Python keeps much until exit; fibers run on stacks that the sanitizer has not seen; faults of kernels are ours to handle.
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:handle_sigfpe=0:handle_sigbus=0
export ASAN_OPTIONS=$ASAN_OPTIONS:allow_user_segv_handler=1:abort_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
LD_LIBRARY_PATH=$nvrtc${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LD_PRELOAD=$runtime \
  "$python" -m pytest -p no:cacheprovider --ignore=tests/unit/test_leaks.py "${@:-tests}"  # freed memory is kept here, so it grows
