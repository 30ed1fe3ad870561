"""The floor: the same kernel launched from a C loop over `cuLaunchKernel`, with nothing else in it."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE = r"""
#include <stdint.h>
#include <time.h>
typedef int (*launch_t)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**);
long long loop(launch_t launch, void* kernel, void* stream, const uint64_t* values, int count, int repeats) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < repeats; i++) {
    uint64_t slots[64];
    void* pointers[64];
    for (int k = 0; k < count; k++) { slots[k] = values[k]; pointers[k] = &slots[k]; }
    if (launch(kernel, 1, 1, 1, 256, 1, 1, 0, stream, pointers, 0)) return -1;
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  return (b.tv_sec - a.tv_sec) * 1000000000LL + (b.tv_nsec - a.tv_nsec);
}
"""


class Floor:
    """Builds the loop with the system's C compiler and runs it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name) / "floor.so"
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SOURCE.encode(), check=True
        )
        self._loop = ctypes.CDLL(str(library)).loop
        self._loop.restype = ctypes.c_longlong
        self._launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)

    def run(self, kernel: int, stream: int, values: Sequence[int], repeats: int) -> int:
        """Return the nanoseconds of `repeats` launches with these 8-byte argument slots."""
        slots = (ctypes.c_uint64 * max(len(values), 1))(*values)
        arguments = (self._launch, ctypes.c_void_p(kernel), ctypes.c_void_p(stream), slots, len(values), repeats)
        elapsed = int(self._loop(*arguments))
        assert elapsed >= 0, "the C loop's launch failed"
        return elapsed
