"""What does a checked launch cost the host on a machine without a GPU?  Over a driver that does nothing.

Not: what NVIDIA's driver costs.  `python -m benchmarks.bench_host` builds the stub driver of the tests, runs itself on
it, and prints nanoseconds beside a C loop over the same driver.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def run(results: dict[str, dict[str, float]]) -> None:
    """Add host costs, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(_stub().build(Path(folder)))}
        command = [sys.executable, "-m", "benchmarks.bench_host", "--on-the-stub"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment)
    results.update(json.loads(done.stdout))


def _stub() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stub_driver", ROOT / "tests" / "stub_driver" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _measure() -> dict[str, dict[str, float]]:
    import ctypes

    import tenferro_interop as tfi

    from ._floor import Floor
    from ._kernels import AXPY, ELEMENTS, float_slot
    from ._timing import beside, timed

    ctypes.CDLL("libcuda.so.1").stub_logging(0)
    with tfi.session("cuda") as s:
        x, y = (s.alloc_output((ELEMENTS,), "float32") for _ in range(2))
        axpy, config = s.compile_nvrtc(AXPY).function("axpy"), tfi.LaunchConfig.flat(ELEMENTS)
        names = {"s": s, "axpy": axpy, "config": config, "x": x, "y": y, "n": ELEMENTS, "session": tfi.session}
        slots = [float_slot(2.0), s.tensor(x)._address, s.tensor(y)._address, ELEMENTS]
        floor = functools.partial(Floor().run, axpy.handle_value, s.stream_handle, slots)
        statements = {
            "launch, our own tensors": "s.launch(axpy, config, [2.0, x, y, n])",
            "prepared launch, our own tensors": "prepared()",
            "open + close, by stream": "session('cuda', stream=stream).close()",
        }
        prepared = s.prepare(axpy, config, [2.0, x, y, ELEMENTS])
        return {
            name: beside(timed(text, prepared=prepared, stream=s.stream, **names), floor, s.synchronize)
            for name, text in statements.items()
        }


def main() -> None:
    """Run on the stub where it is the driver already, else start there."""
    results: dict[str, dict[str, float]] = {}
    if "--on-the-stub" in sys.argv:
        print(json.dumps(_measure()))
        return
    run(results)
    for name, timing in results.items():
        print(f"{name:<40}{timing['median']:>8.0f} ns   the C loop {timing['floor']:.0f} ns")


if __name__ == "__main__":
    main()
