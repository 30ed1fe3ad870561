"""How does the cost of a launch change when 1 to 8 threads launch at once, each in a session on its own stream?"""

from __future__ import annotations

import threading
import time

import torch

import tenferro_interop as tfi

from ._kernels import AXPY, ELEMENTS

LAUNCHES = 4000


def run(results: dict[str, dict[str, float]]) -> None:
    """Add nanoseconds per launch over all threads (wall time over launches)."""
    for count in (1, 2, 4, 8):
        barrier = threading.Barrier(count + 1)
        threads = [threading.Thread(target=_work, args=(barrier,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        barrier.wait()
        start = time.perf_counter_ns()
        barrier.wait()
        results[f"{count} threads, own streams"] = {
            "median": round((time.perf_counter_ns() - start) / (count * LAUNCHES), 1)
        }
        for thread in threads:
            thread.join()


def _work(barrier: threading.Barrier) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x, y = torch.zeros(ELEMENTS, device="cuda"), torch.zeros(ELEMENTS, device="cuda")
        with tfi.session(like=x) as s:
            axpy, config = s.compile_nvrtc(AXPY).function("axpy"), tfi.LaunchConfig.flat(ELEMENTS)
            s.launch(axpy, config, [2.0, x, y, ELEMENTS])
            barrier.wait()
            for _ in range(LAUNCHES):
                s.launch(axpy, config, [2.0, x, y, ELEMENTS])
            barrier.wait()
            s.synchronize()
