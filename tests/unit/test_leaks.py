"""A million launches leave nothing behind: resident memory, objects that the collector knows, reference counts."""

from __future__ import annotations

import functools
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support import AXPY

import tenferro_interop as tfi

LAUNCHES = 1_000_000
GROWTH_KIB = 8192  # an object of 32 bytes for each launch would be 30 MiB; other tests' threads still move a few


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def assert_nothing_stays(step: Callable[[], object], times: int, watched: list[object]) -> None:
    """Repeat a step; memory, the collector's objects and the references to what it uses must be as before."""
    for _ in range(2000):
        step()
    gc.collect()
    objects, references, memory = len(gc.get_objects()), list(map(sys.getrefcount, watched)), resident_kib()
    for _ in range(times):
        step()
    gc.collect()
    assert list(map(sys.getrefcount, watched)) == references
    assert resident_kib() - memory < GROWTH_KIB
    assert len(gc.get_objects()) - objects < 100


def test_a_million_launches_leave_nothing(device: str):
    x, y = torch.zeros(8, device=device), torch.zeros(8, device=device)
    with tfi.session(like=x) as s:
        kernel, config = s.compile_nvrtc(AXPY).function("axpy"), tfi.LaunchConfig.flat(0)
        step = functools.partial(s.launch, kernel, config, [2.0, x, y, 8])
        assert_nothing_stays(step, LAUNCHES, [x, y, kernel, config, s])


def test_a_million_refused_launches_leave_nothing(device: str):
    x, y = torch.zeros(8, device=device), torch.zeros(8, device=device)
    with tfi.session(like=x) as s:
        kernel, config = s.compile_nvrtc(AXPY).function("axpy"), tfi.LaunchConfig.flat(0)

        def refused() -> None:
            with pytest.raises(tfi.SignatureError):
                s.launch(kernel, config, [x, x, y, 8])

        assert_nothing_stays(refused, LAUNCHES // 50, [x, y, kernel, config, s])


def test_sessions_references_and_capsules_leave_nothing():
    x, y = np.zeros(8, "f4"), torch.zeros(8)
    with tfi.session("cpu") as s:
        kernel, config = s.compile_nvrtc(AXPY).function("axpy"), tfi.LaunchConfig.flat(8)

    def step() -> None:
        with tfi.session(like=x) as inner:
            ref, out = inner.tensor(x), inner.tensor_mut(y)
            inner.launch(kernel, config, [1.0, ref, out, 8])
            inner.prepare(kernel, config, [1.0, x, y, 8])()
            made = inner.alloc_output((8,), "float32")
            torch.from_dlpack(made)

    assert_nothing_stays(step, 20_000, [x, y, kernel, config])
