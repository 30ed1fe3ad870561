"""What does a call of a PyTorch operator cost the host, beside PyTorch's own and the same kernel behind `custom_op`?

Does not measure the kernel: the tensors are small, and the device is drained outside the timed part.
`python -m benchmarks.bench_torch_op` runs alone, on the CPU device where there is no GPU; `--profile` there shows the
parts of a call.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

import tenferro_interop as tfi
from tenferro_interop_torch import op

from ._timing import ROUNDS, Timing, per_call

SOURCE = """
extern "C" __global__ void twice(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
"""
SPEC = tfi.KernelSpec(
    SOURCE, "twice", outputs={"y": "x"}, values={"n": lambda x: x.size}, config=lambda n: tfi.LaunchConfig.flat(n)
)
scale = op(
    SPEC,
    "tfi_bench::scale",
    backward=lambda ctx, grad: (scale(grad, ctx.a), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "a", inputs[1]),
)


def run(results: dict[str, dict[str, float]], shape: tuple[int, ...] = (64, 64), device: str = "cuda") -> None:
    """Add one entry for each route; `ratio` is to PyTorch's own `mul`, timed in turn with it."""
    x = torch.rand(shape, device=device)
    y, w = torch.empty_like(x), x.clone().requires_grad_()
    inner = _custom_op()
    drain = torch.cuda.synchronize if device == "cuda" else _nothing
    routes: dict[str, Callable[[], object]] = {
        "torch op, eager": lambda: scale(x, 2.0),
        "torch op, out variant": lambda: scale.out(x, 2.0, y),
        "torch op, through the dispatcher": lambda: scale.overload(x, 2.0),
        "torch op, recorded by autograd": lambda: scale(w, 2.0),
        "same kernel behind custom_op": lambda: inner(x, 2.0),
        "same kernel behind custom_op, recorded by autograd": lambda: inner(w, 2.0),
        "torch.mul": lambda: torch.mul(x, 2.0),
        "torch.mul, recorded by autograd": lambda: torch.mul(w, 2.0),
    }
    for name, call in routes.items():
        results[name] = _beside(call, lambda: torch.mul(x, 2.0), drain)


def _beside(call: Callable[[], object], native: Callable[[], object], drain: Callable[[], object]) -> dict[str, float]:
    mine, ratios = [], []
    for _ in range(ROUNDS):
        base = per_call(native, drain, rounds=1).median
        mine.append(per_call(call, drain, rounds=1).median)
        ratios.append(mine[-1] / base)
    return {**Timing.of(mine).as_dict(), "ratio": round(Timing.of(ratios).median, 3)}


def _custom_op() -> Callable[..., torch.Tensor]:
    """Return the kernel behind `torch.library.custom_op`, launched as leanly as our own call does."""
    functions: dict[int, tfi.Function] = {}

    @torch.library.custom_op("tfi_bench::inner", mutates_args=())
    def inner(x: torch.Tensor, a: float) -> torch.Tensor:
        y = torch.empty_like(x)
        with tfi.session(like=x) as s:
            function = functions.get(x.get_device())
            if function is None:
                function = functions[x.get_device()] = SPEC.function(s, "twice")
            s.launch(function, tfi.LaunchConfig.flat(x.numel()), (x, y, a, x.numel()))
        return y

    inner.register_fake(lambda x, a: torch.empty_like(x))
    inner.register_autograd(
        lambda ctx, grad: (inner(grad, ctx.a), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "a", inputs[1]),
    )
    return inner


def _nothing() -> None:
    """There is nothing to drain on the CPU."""


def _profile() -> None:
    """Print what the parts of one call cost on the CPU device, with no elements, so that no thread is woken."""
    x = torch.rand(0, 64)
    y = torch.empty_like(x)
    with tfi.session(like=x) as s:
        function, config = SPEC.function(s, "twice"), tfi.LaunchConfig.flat(0)
        parts: dict[str, Callable[[], object]] = {
            "empty lambda": lambda: None,
            "empty_like": lambda: torch.empty_like(x),
            "key of the plan": lambda: hash((x.shape, x.dtype, x.get_device())),
            "launch": lambda: s.launch(function, config, (x, y, 2.0, 0)),
        }
        for name, call in parts.items():
            print(f"{name:<52}{per_call(call, _nothing).median:>8.0f} ns")
    print(f"{'session':<52}{per_call(lambda: tfi.session(like=x).close(), _nothing).median:>8.0f} ns")


def main() -> None:
    """Run alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show the parts of a call too")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    is_cuda = torch.cuda.is_available()
    run(results, (64, 64) if is_cuda else (0, 64), "cuda" if is_cuda else "cpu")
    for name, timing in results.items():
        print(f"{name:<52}{timing['median']:>8.0f} ns{timing['ratio']:>8.2f} x torch.mul")
    if arguments.profile:
        _profile()


if __name__ == "__main__":
    main()
