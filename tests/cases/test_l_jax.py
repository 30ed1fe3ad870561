"""Public failure reports, section L: JAX arrays, operators and callbacks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import COPY, EVERY_USE, READING, Use, copied, in_subprocess, refused, still_launches

import tenferro_interop as tfi
from tenferro_interop_jax import callback, op

CPU = jax.devices("cpu")[0]

# 134


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())])
def test_case_134_array_inside_a_transform_points_to_the_adapter(cpu_session: tfi.Session, use: Use, transform):
    def body(x: jax.Array) -> jax.Array:
        use(cpu_session, x)
        return x

    with pytest.raises(tfi.UnsupportedError, match="JAX adapter"):
        transform(body)(jnp.ones((2, 3)))
    assert still_launches(cpu_session)


# 135


@pytest.mark.parametrize("use", READING)
def test_case_135_deleted_array_is_said_to_be_deleted(cpu_session: tfi.Session, use: Use):
    x = jax.device_put(np.arange(4.0, dtype="f4"), CPU)
    x.delete()
    with refused(cpu_session, tfi.RuntimeStateError, actual="deleted"):
        use(cpu_session, x)


@pytest.mark.parametrize("use", READING)
def test_case_135_donated_array_is_said_to_be_deleted(cpu_session: tfi.Session, use: Use):
    x = jax.device_put(np.arange(4.0, dtype="f4"), CPU)
    jax.block_until_ready(jax.jit(lambda v: v + 1, donate_argnums=0)(x))
    assert x.is_deleted()
    with refused(cpu_session, tfi.RuntimeStateError, actual="deleted"):
        use(cpu_session, x)


# 137


@pytest.mark.parametrize("spec", ["PartitionSpec('i')", "PartitionSpec()"])
def test_case_137_array_on_two_devices_is_refused_and_one_shard_works(spec: str):
    done = in_subprocess(f"""
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax, jax.numpy as jnp
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec
        import tenferro_interop as tfi
        x = jax.device_put(jnp.arange(4.0), NamedSharding(jax.make_mesh((2,), ("i",)), {spec}))
        with tfi.session("cpu") as s:
            try:
                s.tensor(x)
            except tfi.ValidationError as error:
                assert error.actual == "sharded"
                assert "addressable_shards" in str(error)
            else:
                raise AssertionError
            for shard in x.addressable_shards:
                assert s.download_tensor(shard.data).tolist() == np.asarray(x)[shard.index].tolist()
    """)
    assert done.returncode == 0, done.stderr


# 138


@pytest.mark.parametrize("shape", [(3, 1, 6, 2), (1, 4), (4, 1), (1, 1, 1), (2, 0, 1)])
def test_case_138_our_output_is_an_ordinary_array_to_jax(cpu_session: tfi.Session, shape: tuple[int, ...]):
    made = cpu_session.alloc_output(shape, "float32")
    ones = cpu_session.compile_nvrtc('extern "C" __global__ void ones(float* x) { x[threadIdx.x] = 1; }').function(
        "ones"
    )
    count = int(np.prod(shape))
    cpu_session.launch(ones, tfi.LaunchConfig(1, count) if count else tfi.LaunchConfig.flat(0), [made])
    x = jax.dlpack.from_dlpack(made)
    assert x.shape == shape
    assert bool(jnp.all(x == 1))
    assert x.transpose().sum() == count
    assert copied(cpu_session, x.reshape(-1), count) == [1.0] * count


FOUR = jax.ShapeDtypeStruct((4,), "float32")
COPIED = tfi.KernelSpec(
    COPY, "copy_f32", outputs={"y": "x"}, values={"n": lambda x: x.size}, config=lambda n: tfi.LaunchConfig.flat(n)
)


def on(device: str) -> jax.Array:
    """Return four floats."""
    return jax.device_put(np.arange(4, dtype="f4"), jax.devices(device)[0])


def copy(s: tfi.Session, out: Any, x: Any) -> None:
    """Copy four floats; for `callback`."""
    s.launch(s.compile_nvrtc(COPY).function("copy_f32"), tfi.LaunchConfig.flat(4), [x, out, 4])


def test_case_138_result_of_an_operator_is_an_ordinary_array(device: str):
    x = jax.device_put(np.arange(36, dtype="f4").reshape(3, 1, 6, 2), jax.devices(device)[0])
    y = op(COPIED)(x)
    assert bool(jnp.all(y == x))
    assert y.transpose().sum() == x.sum()


# 139


def test_case_139_callback_on_one_device_does_not_hang():
    done = in_subprocess("""
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax, numpy as np
        import tenferro_interop as tfi
        from tenferro_interop_jax import callback
        SOURCE = 'extern "C" __global__ void next(const float* x, float* y) {'
        SOURCE += " int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i] + 1; }"
        def fn(s, out, x):
            s.launch(s.compile_nvrtc(SOURCE).function("next"), tfi.LaunchConfig(1024, 256), [x, out])
        f = callback(fn, jax.ShapeDtypeStruct((512, 512), "float32"))
        g = jax.jit(lambda x: f(f(x @ x) @ x).sum())
        x = np.zeros((512, 512), "f4")
        assert [float(g(x)) for _ in range(5)] == [512.0 * 512] * 5
    """)
    assert done.returncode == 0, done.stderr


# 141


def test_case_141_callback_cannot_write_its_arguments(device: str):
    def tamper(s: tfi.Session, out: Any, x: Any) -> None:
        copy(s, out, x)
        s.tensor_mut(x)

    x = on(device)
    with pytest.raises(jax.errors.JaxRuntimeError, match="tensor must"):
        jax.block_until_ready(callback(tamper, FOUR)(x))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_case_141_kernel_of_a_callback_cannot_write_its_arguments(device: str):
    def tamper(s: tfi.Session, out: Any, x: Any) -> None:
        copy(s, x, out)

    x = on(device)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"argument 1 \(float\* y\)"):
        jax.block_until_ready(callback(tamper, FOUR)(x))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


# 142


def test_case_142_what_a_callback_keeps_is_refused_afterwards(device: str):
    kept: list[Any] = []

    def keep(s: tfi.Session, out: Any, x: Any) -> None:
        kept.extend([s, out, x])
        copy(s, out, x)

    jax.block_until_ready(callback(keep, FOUR)(on(device)))
    closed, out, x = kept
    assert not out.is_valid
    assert not x.is_valid
    with pytest.raises(tfi.RuntimeStateError):
        closed.tensor(x)
    with tfi.session(device) as s:
        for late in (out, x):
            with pytest.raises(tfi.RuntimeStateError):
                s.download_tensor(late)
            with pytest.raises(tfi.TenferroError):
                copy(s, s.alloc_output((4,), "float32"), late)


# 143


def test_case_143_text_of_an_error_survives_and_the_next_call_works(device: str):
    def wrong(s: tfi.Session, out: Any, x: Any) -> None:
        s.launch(s.compile_nvrtc(COPY).function("copy_f32"), tfi.LaunchConfig.flat(4), [x, out])

    x = on(device)
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match="SignatureError: launch: kernel 'copy_f32'"):
            jax.block_until_ready(jax.jit(callback(wrong, FOUR))(x))
        assert jax.jit(callback(copy, FOUR))(x).tolist() == [0.0, 1.0, 2.0, 3.0]


# 145


@pytest.mark.parametrize(
    "differentiate",
    [lambda f, x: jax.grad(lambda x: f(x).sum())(x), lambda f, x: jax.jvp(f, (x,), (x,))],
    ids=["grad", "jvp"],
)
@pytest.mark.parametrize("f", [callback(copy, FOUR), op(COPIED)], ids=["callback", "op"])
def test_case_145_derivative_that_is_missing_is_named(f: Any, differentiate: Any):
    with pytest.raises(tfi.UnsupportedError, match="must have a derivative") as caught:
        differentiate(f, on("cpu"))
    assert caught.value.argument == "vjp"


def test_case_145_derivative_that_is_given_is_used(device: str):
    f = op(COPIED, vjp=lambda grad_y: grad_y)
    assert jax.grad(lambda x: (f(x) * x).sum())(on(device)).tolist() == [0.0, 2.0, 4.0, 6.0]


# 147


@pytest.mark.parametrize(("has_side_effect", "calls"), [(False, 0), (True, 1)])
def test_case_147_unused_callback_is_dropped_unless_it_has_side_effects(device: str, has_side_effect: bool, calls: int):
    seen = []

    def note(s: tfi.Session, out: Any, x: Any) -> None:
        seen.append(1)
        copy(s, out, x)

    f = callback(note, FOUR, has_side_effect=has_side_effect)
    jax.block_until_ready(jax.jit(lambda x: (f(x), x + 1)[1])(on(device)))
    jax.effects_barrier()
    assert len(seen) == calls


@pytest.mark.parametrize("has_side_effect", [False, True])
def test_case_147_unused_operator_is_dropped_unless_it_has_side_effects(device: str, has_side_effect: bool):
    f = op(COPIED, has_side_effect=has_side_effect)
    program = jax.jit(lambda x: (f(x), x + 1)[1]).lower(on(device)).compile().as_text()
    assert ("tenferro_interop" in program) is has_side_effect
