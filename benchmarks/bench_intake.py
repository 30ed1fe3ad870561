"""What does one more tensor argument cost, by producer, beside the producer's own export?"""

from __future__ import annotations

from typing import Any

import torch

import tenferro_interop as tfi

from ._kernels import ELEMENTS, pointers
from ._timing import per_call

COUNT = 8


def run(results: dict[str, dict[str, float]]) -> None:
    """Add the marginal cost per tensor: a launch of 8 that enqueues nothing, less one of none, over 8."""
    x = torch.zeros(ELEMENTS, device="cuda")
    with tfi.session(like=x) as s:
        none, eight = (s.compile_nvrtc(pointers(n)).function(f"p{n}") for n in (0, COUNT))
        config = tfi.LaunchConfig.flat(0)
        base = per_call(lambda: s.launch(none, config, ()), torch.cuda.synchronize).median
        for name, tensors in _sources().items():
            read = [*tensors, torch.zeros(ELEMENTS, device="cuda")]
            cost = per_call(lambda read=read: s.launch(eight, config, read), torch.cuda.synchronize).median  # type: ignore[misc]  # bound now
            results[f"intake of one {name}"] = {"median": round((cost - base) / COUNT, 1)}
            export = per_call(tensors[0].__dlpack__, torch.cuda.synchronize, batch=64).median
            results[f"its own __dlpack__: {name}"] = {"median": round(export, 1)}


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
