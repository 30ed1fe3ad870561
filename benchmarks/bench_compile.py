"""What does compiling cost cold, from disk, from memory; and does a launch slow down as kernels pile up?"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import tenferro_interop as tfi
from tenferro_interop._nvrtc import compile_cubin

from ._kernels import AXPY, ELEMENTS
from ._timing import per_batch, timed

CACHED = (1, 10, 100, 1000, 10_000)
BLOCK = 1000  # kernels of one image
_TIMED = """
import statistics, time, torch, tenferro_interop as tfi
x = torch.zeros(8, device="cuda")
samples = []
with tfi.session(like=x) as s:
    for i in range(21):
        start = time.perf_counter_ns()
        s.compile_nvrtc(SOURCE.replace("axpy", f"axpy{i}")).function(f"axpy{i}")
        samples.append(time.perf_counter_ns() - start)
print(statistics.median(samples))
"""


def run(results: dict[str, dict[str, float]]) -> None:
    """Add compile times in nanoseconds, and launch times by number of kernels alive."""
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "from disk, new process"):
            script = f"SOURCE = {AXPY!r}\n{_TIMED}"
            done = subprocess.run(
                [sys.executable, "-c", script], env={**os.environ, "TENFERRO_CACHE_DIR": cache}, check=True,
                capture_output=True, text=True,
            )  # fmt: skip
            results[f"compile {name}"] = {"median": float(done.stdout)}
    x = torch.zeros(ELEMENTS, device="cuda")
    with tfi.session(like=x) as s:
        s.compile_nvrtc(AXPY).function("axpy")
        memory = timed("s.compile_nvrtc(source).function('axpy')", s=s, source=AXPY)
        results["compile from memory"] = per_batch(memory, torch.cuda.synchronize, rounds=5).as_dict()
        results["the driver's own load of the image"] = {"median": _driver_load()}
        _many(results, s, x)


def _driver_load() -> float:
    """Return the nanoseconds in which cuda.bindings loads the same CUBIN, which no cache can save."""
    from cuda.bindings import driver

    image = compile_cubin(AXPY, tfi.NvrtcOptions(), arch=_arch()).image
    samples = []
    for _ in range(20):
        start = time.perf_counter_ns()
        _, library = driver.cuLibraryLoadData(image, [], [], 0, [], [], 0)
        driver.cuLibraryGetModule(library)
        samples.append(time.perf_counter_ns() - start)
        driver.cuLibraryUnload(library)
    return float(statistics.median(samples))


def _arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _many(results: dict[str, dict[str, float]], s: tfi.Session, x: torch.Tensor) -> None:
    """Launch the newest of 1 to 10,000 kernels alive, each a `Function` of its own."""
    lines = [f'extern "C" __global__ void k{i}(float* x) {{ x[threadIdx.x] = {i}; }}' for i in range(BLOCK)]
    image = compile_cubin("\n".join(lines), tfi.NvrtcOptions(), arch=_arch()).image
    config, kernels = tfi.LaunchConfig(1, 32), []
    module = s.load_cubin(image)
    for target in CACHED:
        while len(kernels) < target:
            index = len(kernels) % BLOCK
            module = module if index else s.load_cubin(image)
            kernels.append(module.function(f"k{index}", signature="float* x"))
        loop = timed("s.launch(kernel, config, [x])", s=s, kernel=kernels[-1], config=config, x=x)
        results[f"launch with {target} kernels alive"] = per_batch(loop, torch.cuda.synchronize).as_dict()
