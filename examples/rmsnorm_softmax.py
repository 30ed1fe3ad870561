"""RMSNorm with residual and a row softmax, on one batch of activations, for NumPy, PyTorch and JAX.

One CUDA source, two kernels, the two steps between which a transformer block spends its memory traffic:

    hidden = x + residual
    normed = hidden / sqrt(mean(hidden**2) + eps) * weight          `add_rms_norm`
    probabilities = softmax(normed)                                 `row_softmax`

Each row is one thread block that reduces in dynamic shared memory.  The same Python function `apply` runs it on the
arrays of every framework that is installed; the results are compared with that framework's own operations (for NumPy:
with a float64 reference), and printed as one table.  The exit code is 1 if any row differs.

    python examples/rmsnorm_softmax.py [--device cpu|cuda] [--out DIR]

Without `--device` it takes the first GPU, else the CPU device.  `--out` also writes the table to a file.
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tenferro_interop as tfi

ROWS, COLUMNS, THREADS, EPSILON = 64, 1024, 256, 1e-6
# float32 sums of 1024 terms, in another order than the reference's; the values are below 10 and below 1.
TOLERANCE = {"add_rms_norm": 1e-5, "row_softmax": 1e-6}

SOURCE = r"""
extern __shared__ float partial[];  // one float per thread of the block

struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };
struct Max { __device__ float operator()(float a, float b) const { return fmaxf(a, b); } };

// Combine one value of every thread; all threads get the result.  blockDim.x is a power of two.
template <class Combine>
__device__ float block_reduce(float value, Combine combine) {
    partial[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] = combine(partial[threadIdx.x], partial[threadIdx.x + half]);
        __syncthreads();
    }
    float result = partial[0];
    __syncthreads();  // nobody may start the next reduction before all have read this one
    return result;
}

extern "C" __global__ void add_rms_norm(const float* x, const float* residual, const float* weight,
                                        float* hidden, float* normed, int columns, float epsilon) {
    size_t row = (size_t)blockIdx.x * columns;
    float squares = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float h = x[row + c] + residual[row + c];
        hidden[row + c] = h;
        squares += h * h;
    }
    float scale = rsqrtf(block_reduce(squares, Sum()) / columns + epsilon);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) normed[row + c] = hidden[row + c] * scale * weight[c];
}

extern "C" __global__ void row_softmax(const float* x, float* y, int columns) {
    size_t row = (size_t)blockIdx.x * columns;
    float top = -3.402823466e38f, sum = 0;  // the lowest float
    for (int c = threadIdx.x; c < columns; c += blockDim.x) top = fmaxf(top, x[row + c]);
    top = block_reduce(top, Max());
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(x[row + c] - top);
    sum = block_reduce(sum, Sum());
    for (int c = threadIdx.x; c < columns; c += blockDim.x) y[row + c] = expf(x[row + c] - top) / sum;
}
"""


class Outcome(NamedTuple):
    """One line of the table."""

    op: str
    framework: str
    device: str
    error: float

    @property
    def is_ok(self) -> bool:
        """Whether the result is as close as float32 allows; not so for NaN."""
        return self.error <= TOLERANCE[self.op]


def apply(s: tfi.Session, x: Any, residual: Any, weight: Any, like: Any = None) -> tuple[Any, Any, Any]:
    """Run both kernels on the arrays of any framework and return (hidden, normed, probabilities).

    The outputs are `like`'s own kind of array where its framework lets us allocate one, else `DeviceTensor`s, which
    every framework takes over without a copy.
    """
    module = s.compile_nvrtc(SOURCE)
    hidden, normed, probabilities = (s.alloc_output((ROWS, COLUMNS), "float32", like=like) for _ in range(3))
    rows = tfi.LaunchConfig(grid=ROWS, block=THREADS, shared_mem_bytes=4 * THREADS)
    s.launch(module.function("add_rms_norm"), rows, [x, residual, weight, hidden, normed, COLUMNS, EPSILON])
    s.launch(module.function("row_softmax"), rows, [normed, probabilities, COLUMNS])
    return hidden, normed, probabilities


def activations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make the batch, the residual stream and the weight of the norm, the same in every run."""
    random = np.random.default_rng(seed=2024)
    x, residual = random.standard_normal((2, ROWS, COLUMNS), dtype=np.float32)
    return x, residual, random.uniform(0.5, 1.5, COLUMNS).astype(np.float32)


def outcomes(framework: str, device: str, got: tuple[Any, Any, Any], expected: tuple[Any, Any, Any]) -> list[Outcome]:
    """Compare each kernel's results with the reference's."""
    pairs = zip(got, expected, strict=True)
    errors = [float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()) for a, b in pairs]
    return [
        Outcome("add_rms_norm", framework, device, max(errors[:2])),
        Outcome("row_softmax", framework, device, errors[2]),
    ]


def run_numpy(device: str) -> list[Outcome]:
    """NumPy arrays: used in place on the CPU device, uploaded to a GPU; the reference is in float64."""
    arrays = activations()
    x, residual, weight = (array.astype(np.float64) for array in arrays)
    hidden = x + residual
    normed = hidden / np.sqrt((hidden**2).mean(axis=1, keepdims=True) + EPSILON) * weight
    powers = np.exp(normed - normed.max(axis=1, keepdims=True))
    expected = hidden, normed, powers / powers.sum(axis=1, keepdims=True)
    with tfi.session(device) as s:
        if s.device == "cpu":
            got = apply(s, *arrays, like=arrays[0])
        else:
            outputs = apply(s, *(s.upload_bytes(array.tobytes()) for array in arrays))
            got = tuple(s.download_tensor(output) for output in outputs)
        return outcomes("numpy", s.device, got, expected)


def run_torch(device: str) -> list[Outcome]:
    """PyTorch tensors: the kernels run on PyTorch's current stream, the outputs come from its allocator."""
    import torch
    from torch.nn.functional import rms_norm

    x, residual, weight = (torch.from_numpy(array).to(device) for array in activations())
    hidden = x + residual
    normed = rms_norm(hidden, (COLUMNS,), weight, EPSILON)
    expected = hidden, normed, torch.softmax(normed, dim=1)
    with tfi.session(like=x) as s:
        got = apply(s, x, residual, weight, like=x)
        return outcomes("torch", s.device, tuple(t.cpu() for t in got), tuple(t.cpu() for t in expected))


def run_jax(device: str) -> list[Outcome]:
    """JAX arrays: inputs are only read; the outputs become JAX arrays without a copy."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the GPU is shared with the others here
    import jax
    import jax.numpy as jnp

    x, residual, weight = (jax.device_put(array, jax.devices(device)[0]) for array in activations())
    hidden = x + residual
    normed = hidden * jax.lax.rsqrt((hidden**2).mean(axis=1, keepdims=True) + EPSILON) * weight
    expected = hidden, normed, jax.nn.softmax(jnp.asarray(normed), axis=1)
    with tfi.session(like=x) as s:
        got = tuple(jax.dlpack.from_dlpack(output) for output in apply(s, x, residual, weight))
        return outcomes("jax", s.device, got, expected)


def torch_has(device: str) -> bool:
    """Whether PyTorch is installed and built for the device."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return device == "cpu" or torch.cuda.is_available()


def jax_has(device: str) -> bool:
    """Whether JAX is installed and has a backend for the device."""
    if importlib.util.find_spec("jax") is None:
        return False
    import jax

    try:
        return bool(jax.devices(device))
    except RuntimeError:
        return False


def runs(device: str) -> Iterator[Callable[[str], list[Outcome]]]:
    """Yield the runs that this machine can do."""
    yield run_numpy
    if torch_has(device):
        yield run_torch
    if jax_has(device):
        yield run_jax


def table(results: list[Outcome]) -> str:
    """Lay out the results."""
    lines = [f"{'op':<14}{'framework':<11}{'device':<8}{'max abs error':>14}  ok"]
    lines += [
        f"{r.op:<14}{r.framework:<11}{r.device:<8}{r.error:>14.2e}  {'yes' if r.is_ok else 'NO'}" for r in results
    ]
    return "\n".join(lines)


def main() -> int:
    """Run everything, print the table, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: the first GPU, else the CPU device")
    parser.add_argument("--out", type=Path, help="folder for rmsnorm_softmax.txt")
    options = parser.parse_args()
    with tfi.session(options.device) as s:
        device = s.device.partition(":")[0]
    results = [outcome for run in runs(device) for outcome in run(device)]
    print(f"{ROWS} x {COLUMNS} float32 activations")
    print(table(results))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "rmsnorm_softmax.txt").write_text(table(results) + "\n")
    return 0 if all(outcome.is_ok for outcome in results) else 1


if __name__ == "__main__":
    sys.exit(main())
