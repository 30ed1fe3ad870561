"""What does one checked launch cost the host, beside a C loop and the peers?  (Not: what the kernel costs the GPU.)"""

from __future__ import annotations

import functools
import traceback
from typing import Any

import torch

import tenferro_interop as tfi

from . import _peers
from ._floor import Floor
from ._kernels import AXPY, ELEMENTS, float_slot, pointers
from ._timing import beside, per_batch, timed

COUNTS = (0, 1, 3, 8, 32)


def run(results: dict[str, dict[str, float]], *, with_peers: bool = True) -> None:
    """Add one entry for each way of launching."""
    x, y = torch.randn(ELEMENTS, device="cuda"), torch.randn(ELEMENTS, device="cuda")
    with tfi.session(like=x) as s:
        axpy = s.compile_nvrtc(AXPY).function("axpy")
        config = tfi.LaunchConfig.flat(ELEMENTS)
        floor = Floor()
        _axpy(results, s, axpy, config, x, y, floor)
        _by_count(results, s, floor)
        if with_peers:
            _run_peers(results, x, y, s.stream_handle, axpy.handle_value, floor)


def _axpy(
    results: Any, s: tfi.Session, axpy: tfi.Function, config: tfi.LaunchConfig, x: Any, y: Any, floor: Floor
) -> None:
    drain = torch.cuda.synchronize
    slots = [float_slot(2.0), x.data_ptr(), y.data_ptr(), ELEMENTS]
    handle, stream = axpy.handle_value, s.stream_handle
    names = {"s": s, "session": tfi.session, "axpy": axpy, "config": config, "x": x, "y": y, "n": ELEMENTS}
    launch = timed("s.launch(axpy, config, [2.0, x, y, n])", **names)
    as_tuple = timed("s.launch(axpy, config, (2.0, x, y, n))", **names)
    prepared = timed("prepared()", prepared=s.prepare(axpy, config, [2.0, x, y, ELEMENTS]))
    opened = timed("with session(like=x) as s: s.launch(axpy, config, [2.0, x, y, n])", **names)
    c_loop = functools.partial(floor.run, handle, stream, slots)
    results["C loop"] = per_batch(c_loop, drain).as_dict()
    results["launch"] = beside(launch, c_loop, drain)
    results["launch, arguments in a tuple"] = beside(as_tuple, c_loop, drain)
    results["prepared launch"] = beside(prepared, c_loop, drain)
    results["open + launch + close"] = beside(opened, c_loop, drain)


def _by_count(results: Any, s: tfi.Session, floor: Floor) -> None:
    config = tfi.LaunchConfig(1, ELEMENTS)
    for count in COUNTS:
        kernel = s.compile_nvrtc(pointers(count)).function(f"p{count}")
        tensors = [torch.zeros(ELEMENTS, device="cuda") for _ in range(count)]
        c_loop = functools.partial(floor.run, kernel.handle_value, s.stream_handle, [t.data_ptr() for t in tensors])
        for name, arguments in _argument_lists(tensors).items():
            loop = timed("s.launch(kernel, config, arguments)", s=s, kernel=kernel, config=config, arguments=arguments)
            results[f"launch, {name}"] = beside(loop, c_loop, torch.cuda.synchronize)


def _argument_lists(tensors: list[Any]) -> dict[str, list[Any]]:
    """The same memory as torch tensors, as CuPy arrays, and with JAX arrays for what is only read."""
    count = len(tensors)
    out = {f"{count} torch tensors": tensors}
    try:
        import cupy
        import jax
    except ImportError:
        return out
    if count:
        out[f"{count} CuPy arrays"] = [cupy.from_dlpack(t) for t in tensors]
    if count > 1:
        out[f"{count - 1} JAX arrays + 1 torch tensor"] = [*map(jax.dlpack.from_dlpack, tensors[:-1]), tensors[-1]]
    return out


def _run_peers(results: Any, x: Any, y: Any, stream: int, kernel: int, floor: Floor) -> None:
    """Time each peer that is installed; one that fails is reported and left out."""
    makers: list[tuple[Any, tuple[Any, ...]]] = [
        (_peers.cuda_core, ()), (_peers.cuda_bindings, (kernel,)), (_peers.cupy, ()),
        (_peers.torch_compile_kernel, ()), (_peers.triton, ()), (_peers.numba, ()), (_peers.tvm_ffi, ()),
        (_peers.torch_extension, ()),
    ]  # fmt: skip
    slots = [float_slot(2.0), x.data_ptr(), y.data_ptr(), ELEMENTS]
    c_loop = functools.partial(floor.run, kernel, stream, slots)
    for maker, more in makers:
        try:
            for name, loop in maker(x, y, stream, *more).items():
                results[name] = beside(loop, c_loop, torch.cuda.synchronize)
        except Exception:
            print(f"peer {maker.__name__} left out:")
            traceback.print_exc(limit=1)
