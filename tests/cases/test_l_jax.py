"""Public failure reports, section L: JAX arrays outside of operators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import EVERY_USE, READING, Use, copied, in_subprocess, refused, still_launches

import tenferro_interop as tfi

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
