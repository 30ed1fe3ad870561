"""What does one checked launch cost the host, beside a bare C loop and the peers?  (Not: what the kernel costs the GPU.)"""

from __future__ import annotations

import traceback
from typing import Any

import torch

import tenferro_interop as tfi

from . import _peers
from ._floor import Floor
from ._kernels import AXPY, ELEMENTS, float_slot, pointers
from ._timing import per_batch, per_call

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
            _run_peers(results, x, y, s.stream_handle, axpy.handle_value)
        _again(results, s, axpy, x, y, floor)


def _axpy(results: Any, s: tfi.Session, axpy: tfi.Function, config: tfi.LaunchConfig, x: Any, y: Any, floor: Floor) -> None:
    drain = torch.cuda.synchronize
    slots = [float_slot(2.0), x.data_ptr(), y.data_ptr(), ELEMENTS]
    handle, stream = axpy.handle_value, s.stream_handle
    launch, prepared = s.launch, s.prepare(axpy, config, [2.0, x, y, ELEMENTS])

    def opened() -> None:
        with tfi.session(like=x) as inner:
            inner.launch(axpy, config, [2.0, x, y, ELEMENTS])

    results["C loop"] = per_batch(lambda n: floor.run(handle, stream, slots, n), drain).as_dict()
    results["launch"] = per_call(lambda: launch(axpy, config, [2.0, x, y, ELEMENTS]), drain).as_dict()
    results["prepared launch"] = per_call(prepared, drain).as_dict()
    results["open + launch + close"] = per_call(opened, drain).as_dict()


def _again(results: Any, s: tfi.Session, axpy: tfi.Function, x: Any, y: Any, floor: Floor) -> None:
    """Time the floor once more at the end: the two show how steady the machine was."""
    slots = [float_slot(2.0), x.data_ptr(), y.data_ptr(), ELEMENTS]
    handle, stream = axpy.handle_value, s.stream_handle
    results["C loop, again"] = per_batch(lambda n: floor.run(handle, stream, slots, n), torch.cuda.synchronize).as_dict()


def _by_count(results: Any, s: tfi.Session, floor: Floor) -> None:
    config = tfi.LaunchConfig(1, ELEMENTS)
    for count in COUNTS:
        kernel = s.compile_nvrtc(pointers(count)).function(f"p{count}")
        tensors = [torch.zeros(ELEMENTS, device="cuda") for _ in range(count)]
        slots, handle, stream = [t.data_ptr() for t in tensors], kernel.handle_value, s.stream_handle
        drain = torch.cuda.synchronize
        results[f"C loop, {count} pointers"] = per_batch(
            lambda n, slots=slots, handle=handle: floor.run(handle, stream, slots, n), drain  # type: ignore[misc]  # bound now
        ).as_dict()
        results[f"launch, {count} torch tensors"] = per_call(
            lambda kernel=kernel, tensors=tensors: s.launch(kernel, config, tensors), drain  # type: ignore[misc]  # bound now
        ).as_dict()
        results.update(_other_producers(s, kernel, config, tensors))


def _other_producers(s: tfi.Session, kernel: tfi.Function, config: tfi.LaunchConfig, tensors: list[Any]) -> dict[str, Any]:
    """The same launch with CuPy arrays, and with JAX arrays for what is read."""
    out: dict[str, Any] = {}
    try:
        import cupy

        arrays = [cupy.from_dlpack(t) for t in tensors]
        out[f"launch, {len(tensors)} CuPy arrays"] = per_call(
            lambda: s.launch(kernel, config, arrays), torch.cuda.synchronize
        ).as_dict()
        import jax

        mixed = [jax.dlpack.from_dlpack(t) for t in tensors[:-1]] + tensors[-1:]
        if len(mixed) > 1:
            out[f"launch, {len(mixed) - 1} JAX arrays + 1 torch tensor"] = per_call(
                lambda: s.launch(kernel, config, mixed), torch.cuda.synchronize
            ).as_dict()
    except ImportError:
        pass
    return out


def _run_peers(results: Any, x: Any, y: Any, stream: int, kernel: int) -> None:
    """Time each peer that is installed; one that fails is reported and left out."""
    makers: list[tuple[Any, tuple[Any, ...]]] = [
        (_peers.cuda_core, ()), (_peers.cuda_bindings, (kernel,)), (_peers.cupy, ()),
        (_peers.torch_compile_kernel, ()), (_peers.triton, ()), (_peers.numba, ()), (_peers.tvm_ffi, ()),
        (_peers.torch_extension, ()),
    ]  # fmt: skip
    for maker, more in makers:
        try:
            for name, call in maker(x, y, stream, *more).items():
                results[name] = per_call(call, torch.cuda.synchronize).as_dict()
        except Exception:
            print(f"peer {maker.__name__} left out:")
            traceback.print_exc(limit=1)
