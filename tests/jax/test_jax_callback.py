"""`callback`: a session on XLA's stream, read-only arguments, and nothing that outlives the call."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax_operators import put

import tenferro_interop as tfi
from tenferro_interop_jax import callback

SOURCE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
FOUR = jax.ShapeDtypeStruct((4,), "float32")


def twice(s: tfi.Session, out: Any, x: Any) -> None:
    n = x.shape[0]
    s.launch(s.compile_nvrtc(SOURCE).function("twice"), tfi.LaunchConfig.flat(n), [x, out, n])


def test_callback_launches_inside_jit(device: str) -> None:
    f = callback(twice, FOUR)
    assert jax.jit(lambda x: f(f(x)) + 1)(put(device, range(4))).tolist() == [1.0, 5.0, 9.0, 13.0]
    assert f(put(device, range(4))).tolist() == [0.0, 2.0, 4.0, 6.0]


def test_session_is_on_the_arrays_device(device: str) -> None:
    seen = []

    def look(s: tfi.Session, out: Any, x: Any) -> None:
        seen.append(s.device)
        twice(s, out, x)

    jax.block_until_ready(callback(look, FOUR)(put(device, range(4))))
    assert seen == ["cpu" if device == "cpu" else "cuda:0"]


def test_trees_keep_their_structure(device: str) -> None:
    def both(s: tfi.Session, out: Any, pair: Any) -> None:
        twice(s, out["a"], pair[0])
        twice(s, out["b"], pair[1])

    made = callback(both, {"a": FOUR, "b": FOUR})((put(device, range(4)), put(device, range(4, 8))))
    assert (made["a"].tolist(), made["b"].tolist()) == ([0.0, 2.0, 4.0, 6.0], [8.0, 10.0, 12.0, 14.0])


def test_vmap_by_a_loop(device: str) -> None:
    f = jax.vmap(callback(twice, FOUR, vmap_method="sequential"))
    x = np.arange(12, dtype="f4").reshape(3, 4)
    np.testing.assert_array_equal(f(put(device, x)), 2 * x)


def test_kernel_that_writes_an_argument_is_refused(device: str) -> None:
    def backwards(s: tfi.Session, out: Any, x: Any) -> None:
        twice(s, x, out)

    with pytest.raises(jax.errors.JaxRuntimeError, match="argument 1"):
        jax.block_until_ready(callback(backwards, FOUR)(put(device, range(4))))


def test_returned_value_is_refused() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="callback must write its results and return None, got int"):
        jax.block_until_ready(callback(lambda s, out, x: 3, FOUR)(put("cpu", range(4))))  # type: ignore[arg-type,return-value]


def test_callback_without_results_is_refused() -> None:
    with pytest.raises(tfi.ValidationError, match="result_shape_dtypes must name a result"):
        callback(twice, ())
