"""What does one more tensor argument cost, by producer, beside the producer's own export?"""

from __future__ import annotations

from typing import Any

import torch

import tenferro_interop as tfi

from ._kernels import ELEMENTS, pointers
from ._timing import per_batch, timed

COUNT = 8


def run(results: dict[str, dict[str, float]]) -> None:
    """Add the marginal cost per tensor: a launch of 8 that enqueues nothing, less one of none, over 8."""
    x = torch.zeros(ELEMENTS, device="cuda")
    with tfi.session(like=x) as s:
        none, eight = (s.compile_nvrtc(pointers(n)).function(f"p{n}") for n in (0, COUNT))
        config = tfi.LaunchConfig.flat(0)
        names = {"s": s, "config": config, "none": none, "eight": eight}
        base = per_batch(timed("s.launch(none, config, ())", **names), torch.cuda.synchronize).median
        for name, tensors in _sources().items():
            read = [*tensors, torch.zeros(ELEMENTS, device="cuda")]
            cost = per_batch(timed("s.launch(eight, config, read)", read=read, **names), torch.cuda.synchronize).median
            results[f"intake of one {name}"] = {"median": round((cost - base) / COUNT, 1)}
            for keyword in ("", f"stream={s.stream_handle or 1}"):
                export = timed(f"export({keyword})", export=tensors[0].__dlpack__)
                time = per_batch(export, torch.cuda.synchronize, batch=64).median
                results[f"its own __dlpack__({keyword and 'stream'}): {name}"] = {"median": round(time, 1)}


def _sources() -> dict[str, list[Any]]:
    """Seven arrays of each framework that is installed."""
    tensors = [torch.zeros(ELEMENTS, device="cuda") for _ in range(COUNT - 1)]
    out: dict[str, list[Any]] = {"torch tensor": tensors}
    try:
        import cupy

        out["CuPy array"] = [cupy.from_dlpack(t) for t in tensors]
        import jax

        out["JAX array"] = [jax.dlpack.from_dlpack(t) for t in tensors]
    except ImportError:
        pass
    return out
