"""XLA's handler: it finds kernels by their hash, checks each call, and names what is wrong."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from jax_operators import AXPY, MIXED, SCALE, SOURCE, put, scale

import tenferro_interop as tfi
from tenferro_interop_jax import op

N = 70


def attributes(device: str, **changed: Any) -> dict[str, Any]:
    """Return the attributes of `scale(x, 3)` on N floats, some of them replaced."""
    with tfi.session(device) as s:
        made = tfi.xla_call(s, SCALE, {"x": tfi.TensorSpec((N,), tfi.DType(2, 32)), "a": 3})
    found = {
        "kernel": np.uint64(made.kernel),
        "plan": np.array(bytearray(made.plan)),
        "numbers": np.array(bytearray(made.numbers)),
        "launch": np.array(made.launch, np.uint32),
    }
    return found | changed


def called(device: str, attrs: dict[str, Any], *, n: int = N, dtype: str = "float32") -> Any:
    """Call the handler as a custom call of XLA."""
    out = [jax.ShapeDtypeStruct((n,), dtype)]
    call = jax.jit(functools.partial(jax.ffi.ffi_call("tenferro_interop", out), **attrs))
    return call(put(device, np.arange(n), dtype))


def test_handler_launches_what_the_attributes_say(device: str) -> None:
    (y,) = called(device, attributes(device))
    assert y.tolist() == [3.0 * i for i in range(N)]


def test_handler_names_an_unknown_kernel(device: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="kernel 0000000000000007 must be registered in this process"):
        jax.block_until_ready(called(device, attributes(device, kernel=np.uint64(7))))


def test_handler_names_the_argument_of_another_element_type(device: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"argument 'x' of kernel 'scale<float>' must have XLA's elem"):
        jax.block_until_ready(called(device, attributes(device), dtype="int32"))


def test_handler_names_the_argument_of_another_size(device: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"argument 'x' .* must have 280 bytes, got 276"):
        jax.block_until_ready(called(device, attributes(device), n=N - 1))


def test_handler_names_a_missing_result(device: str) -> None:
    attrs = attributes(device)
    attrs["plan"][16 + 6] = 1  # the second parameter's place among the results
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"argument 'y' of kernel 'scale<float>' must be a buffer"):
        jax.block_until_ready(called(device, attrs))


@pytest.mark.parametrize("name", ["kernel", "plan", "numbers", "launch"])
def test_handler_refuses_attributes_of_another_kind(device: str, name: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="attributes must be those of tenferro_interop"):
        jax.block_until_ready(called(device, attributes(device, **{name: np.float32(1)})))


def test_handler_refuses_a_number_beyond_its_bytes(device: str) -> None:
    short = attributes(device, numbers=np.zeros(8, np.uint8))
    with pytest.raises(jax.errors.JaxRuntimeError, match="argument 'n' of kernel 'scale<float>' must lie in its numb"):
        jax.block_until_ready(called(device, short))


def test_handler_works_on_after_a_refusal(device: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.block_until_ready(called(device, attributes(device), n=N - 1))
    assert scale(put(device, [1, 2]), 2).tolist() == [2.0, 4.0]


def test_fault_of_a_kernel_is_named_with_its_line() -> None:
    checked = tfi.KernelSpec(
        'extern "C" __global__ void beyond(const float* x, float* y) { y[threadIdx.x + 1] = x[threadIdx.x]; }',
        "beyond",
        outputs={"y": "x"},
        config=tfi.LaunchConfig(1, 4),
        options=tfi.NvrtcOptions(check=True),
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match="kernel 'beyond' must run without a fault"):
        jax.block_until_ready(op(checked)(put("cpu", np.arange(4))))


def test_hash_is_the_same_in_every_session_and_differs_by_instance(device: str) -> None:
    with tfi.session(device) as s:
        of = {
            code: tfi.xla_call(s, SCALE, {"x": tfi.TensorSpec((N,), tfi.DType(code, 32)), "a": 3}).kernel
            for code in (0, 2)
        }
    assert of[2] == int(attributes(device)["kernel"])
    assert of[0] != of[2]


def test_call_is_checked_as_a_launch_is(device: str) -> None:
    vector = tfi.TensorSpec((N,), tfi.DType(2, 32))
    with tfi.session(device) as s:
        with pytest.raises(tfi.ScalarRangeError):
            tfi.xla_call(s, MIXED, {"a": 128, "x": vector, "b": 0.5, "c": 1, "flag": True})
        with pytest.raises(tfi.DTypeError, match="float64"):
            tfi.xla_call(s, AXPY, {"a": 1, "x": vector, "y": tfi.TensorSpec((N,), tfi.DType(2, 64))})


def test_geometry_is_checked_as_a_launch_is(device: str) -> None:
    wide = tfi.KernelSpec(
        SOURCE,
        "scale<{x}>",
        outputs={"y": "x"},
        values={"n": lambda x: x.size},
        config=tfi.LaunchConfig(1, 2048),
    )
    with tfi.session(device) as s, pytest.raises(tfi.ValidationError, match="block"):
        tfi.xla_call(s, wide, {"x": tfi.TensorSpec((N,), tfi.DType(2, 32)), "a": 1})


def test_cooperative_launch_is_refused(device: str) -> None:
    together = tfi.KernelSpec(
        SOURCE,
        "scale<{x}>",
        outputs={"y": "x"},
        values={"n": lambda x: x.size},
        config=tfi.LaunchConfig(1, 32, cooperative=True),
    )
    with tfi.session(device) as s, pytest.raises(tfi.UnsupportedError, match="must be plain"):
        tfi.xla_call(s, together, {"x": tfi.TensorSpec((N,), tfi.DType(2, 32)), "a": 1})


def test_handler_of_another_device_is_refused() -> None:
    with pytest.raises(tfi.ValidationError, match="device must be 'cpu' or 'cuda'"):
        tfi.xla_handler("rocm")
