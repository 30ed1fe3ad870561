"""Geometry as a value, and typed arguments."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig

# LaunchConfig


def test_config_takes_ints_and_sequences():
    assert LaunchConfig(4, 128) == LaunchConfig((4,), [128, 1]) == LaunchConfig(grid=(4, 1, 1), block=(128, 1, 1))


def test_config_takes_integers_of_any_library():
    assert LaunchConfig(np.int64(4), np.array([32, 2])) == LaunchConfig(4, (32, 2))


def test_config_shows_what_was_asked_for():
    config = LaunchConfig((4, 2), 128, 64, cluster=(2,), cooperative=True, programmatic=True)
    assert (config.grid, config.block, config.shared_mem_bytes) == ((4, 2, 1), (128, 1, 1), 64)
    assert (config.cluster, config.cooperative, config.programmatic) == ((2, 1, 1), True, True)


@pytest.mark.parametrize(
    "other",
    [
        LaunchConfig(3, 1), LaunchConfig(2, 2), LaunchConfig(2, 1, 4), LaunchConfig(2, 1, cluster=(2,)),
        LaunchConfig(2, 1, cooperative=True), LaunchConfig(2, 1, programmatic=True), (2, 1), None,
    ],
)  # fmt: skip
def test_config_differs_by_every_field(other: object):
    assert LaunchConfig(2, 1) != other


def test_config_is_a_dictionary_key():
    assert {LaunchConfig(2, 3): "found"}[LaunchConfig((2, 1), 3)] == "found"


@pytest.mark.parametrize("attribute", ["grid", "block", "shared_mem_bytes", "cluster", "cooperative", "new"])
def test_config_is_frozen(attribute: str):
    with pytest.raises(AttributeError):
        setattr(LaunchConfig(1, 1), attribute, 2)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c)), lambda c: eval(repr(c))]
)
@pytest.mark.parametrize(
    "config", [LaunchConfig(2, 3, 4, cluster=(2, 1, 1), cooperative=True), LaunchConfig.flat(100, 32)]
)
def test_config_survives_copies_pickles_and_repr(config: LaunchConfig, again: Callable[[Any], Any]):
    assert again(config) == config


@pytest.mark.parametrize("argument", ["grid", "block", "cluster"])
@pytest.mark.parametrize("value", [0, -1, 2**32, 1.0, "3", True, None, (), (1, 2, 3, 4), (1, 0), (1, None)])
def test_config_refuses_what_is_no_extent(argument: str, value: Any):
    if argument == "cluster" and value is None:
        value = 0
    with pytest.raises(tfi.ValidationError) as error:
        LaunchConfig(**{"grid": 1, "block": 1, argument: value})
    assert (error.value.op, error.value.argument) == ("LaunchConfig", argument)


@pytest.mark.parametrize("value", [-1, 2**32, 1.5, True, "4"])
def test_config_refuses_what_is_no_size(value: Any):
    with pytest.raises(tfi.ValidationError) as error:
        LaunchConfig(1, 1, value)
    assert error.value.argument == "shared_mem_bytes"


@pytest.mark.parametrize(
    ("threads", "block", "grid"), [(1, 256, 1), (256, 256, 1), (257, 256, 2), (2**31 + 8, 256, 8388609), (5, 1, 5)]
)
def test_flat_config_covers_the_threads(threads: int, block: int, grid: int):
    assert LaunchConfig.flat(threads, block=block) == LaunchConfig(grid, block)


def test_flat_config_of_no_threads_is_no_launch():
    config = LaunchConfig.flat(0, 128)
    assert (config.grid, config.block) == ((1, 1, 1), (128, 1, 1))
    assert config != LaunchConfig.flat(1, 128)


@pytest.mark.parametrize(
    ("threads", "block", "argument"),
    [(-1, 256, "threads"), (1.5, 256, "threads"), (None, 256, "threads"), (True, 1, "threads"), (10, 0, "block"),
     (10, -1, "block"), (10, (16, 16), "block"), (2**41, 256, "grid")],
)  # fmt: skip
def test_flat_config_refuses(threads: Any, block: Any, argument: str):
    with pytest.raises(tfi.ValidationError) as error:
        LaunchConfig.flat(threads, block)
    assert (error.value.op, error.value.argument) == ("LaunchConfig", argument)


# KernelArg


@pytest.mark.parametrize(
    ("argument", "bytes_"),
    [
        (KernelArg.i8(-1), "ff"), (KernelArg.i16(-2), "feff"), (KernelArg.i32(-1), "ffffffff"),
        (KernelArg.i64(-1), "ff" * 8), (KernelArg.u8(255), "ff"), (KernelArg.u16(258), "0201"),
        (KernelArg.u32(2**32 - 1), "ffffffff"), (KernelArg.u64(2**64 - 1), "ff" * 8), (KernelArg.f16(3.5), "0043"),
        (KernelArg.bf16(1.0), "803f"), (KernelArg.f32(1), "0000803f"), (KernelArg.f64(1.0), "000000000000f03f"),
        (KernelArg.bool_(True), "01"), (KernelArg.c64(1 + 2j), "0000803f00000040"),
        (KernelArg.c128(1j), "0000000000000000000000000000f03f"), (KernelArg.null(), "00" * 8),
        (KernelArg.struct(b"abc"), "616263"),
    ],
)  # fmt: skip
def test_argument_has_the_bytes_of_its_type(argument: KernelArg, bytes_: str):
    assert argument.data.hex() == bytes_


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (KernelArg.i8, 128), (KernelArg.i8, -129), (KernelArg.i16, 2**15), (KernelArg.i32, 2**31),
        (KernelArg.i64, 2**63), (KernelArg.u8, 256), (KernelArg.u8, -1), (KernelArg.u16, 2**16),
        (KernelArg.u32, 2**32), (KernelArg.u64, 2**64), (KernelArg.u64, -1), (KernelArg.f16, 1e6),
        (KernelArg.f32, 1e300), (KernelArg.f64, 10**400), (KernelArg.bf16, 1e300), (KernelArg.c64, 1e300 + 0j),
        (KernelArg.c128, 10**400),
    ],
)  # fmt: skip
def test_argument_that_does_not_fit_is_refused(make: Callable[[Any], KernelArg], value: Any):
    with pytest.raises(tfi.ScalarRangeError) as error:
        make(value)
    assert (error.value.op, error.value.argument, error.value.actual) == ("KernelArg", "value", value)


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
@pytest.mark.parametrize("make", [KernelArg.f16, KernelArg.bf16, KernelArg.f32, KernelArg.f64])
def test_infinity_is_in_range(make: Callable[[Any], KernelArg], value: float):
    assert make(value).data


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (KernelArg.i32, 1.0), (KernelArg.i32, True), (KernelArg.i32, "1"), (KernelArg.i32, None), (KernelArg.bool_, 1),
        (KernelArg.f32, True), (KernelArg.f32, 1j), (KernelArg.c64, "1+2j"), (KernelArg.c128, True),
        (KernelArg.struct, 5), (KernelArg.struct, "text"), (KernelArg.struct, None), (KernelArg.struct, [1, 2]),
    ],
)  # fmt: skip
def test_argument_of_another_kind_is_refused(make: Callable[[Any], KernelArg], value: Any):
    with pytest.raises(tfi.SignatureError) as error:
        make(value)
    assert (error.value.op, error.value.argument) == ("KernelArg", "value")


def test_argument_is_a_snapshot():
    record = np.zeros((), np.dtype([("a", "i1"), ("b", "f8")], align=True))
    argument = KernelArg.struct(record)
    record["b"] = 5
    assert argument.data == bytes(16)
