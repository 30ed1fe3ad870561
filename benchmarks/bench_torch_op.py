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

from ._timing import Loop, beside, per_batch, timed

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
    names = {"op": scale, "inner": inner, "mul": torch.mul, "x": x, "w": w, "y": y, "a": 2.0}
    routes = {
        "torch op, eager": "op(x, a)",
        "torch op, out variant": "op.out(x, a, y)",
        "torch op, through the dispatcher": "op.overload(x, a)",
        "torch op, recorded by autograd": "op(w, a)",
        "same kernel behind custom_op": "inner(x, a)",
        "same kernel behind custom_op, recorded by autograd": "inner(w, a)",
        "torch.mul": "mul(x, a)",
        "torch.mul, recorded by autograd": "mul(w, a)",
    }
    native = timed("mul(x, a)", **names)
    for name, statement in routes.items():
        results[name] = beside(timed(statement, **names), native, drain)


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
        names = {"s": s, "f": function, "c": config, "x": x, "y": y, "like": torch.empty_like, "session": tfi.session}
        parts: dict[str, Loop] = {
            "empty_like": timed("like(x)", **names),
            "key of the plan": timed("hash((x.shape, x.dtype, x.get_device()))", **names),
            "launch": timed("s.launch(f, c, (x, y, 2.0, 0))", **names),
            "session": timed("session(like=x).close()", **names),
        }
        for name, loop in parts.items():
            print(f"{name:<52}{per_batch(loop, _nothing).median:>8.0f} ns")


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
