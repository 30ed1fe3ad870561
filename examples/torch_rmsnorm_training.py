"""RMSNorm as a PyTorch operator, forward and backward by our kernels, in a small transformer that is trained.

Three kernels make one operator: `rms_norm` (forward, keeps 1/rms of each row), `rms_norm_grad_x`, and `rms_norm_grad_w`
(partial sums over chunks of rows, added up by PyTorch).  The same model is trained twice on the same characters, once
with this operator and once with PyTorch's own operations; the exit code is 1 if the two loss curves differ, or if the
model does not learn.

    python examples/torch_rmsnorm_training.py [--device cpu|cuda] [--out DIR]

`--out` also writes both curves as loss.svg.  On a GPU the step is timed under `torch.compile` too.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import tenferro_interop as tfi
from tenferro_interop_torch import op

WIDTH, HEADS, LAYERS, CONTEXT, BATCH, STEPS = 64, 4, 2, 48, 16, 200
EPSILON, CHUNK = 1e-6, 64
TOLERANCE = 5e-3  # of a loss between 3.4 and 0.4: float32 sums in another order, carried through all the steps

SOURCE = r"""
// One warp a row; every lane gets the sum.
__device__ float warp_sum(float value) {
    for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
}

extern "C" __global__ void rms_norm(const float* x, const float* w, float* y, float* inv, int columns, float epsilon) {
    size_t row = (size_t)blockIdx.x * columns;
    float squares = 0;
    for (int c = threadIdx.x; c < columns; c += 32) squares += x[row + c] * x[row + c];
    float scale = rsqrtf(warp_sum(squares) / columns + epsilon);
    for (int c = threadIdx.x; c < columns; c += 32) y[row + c] = x[row + c] * scale * w[c];
    if (threadIdx.x == 0) inv[blockIdx.x] = scale;
}

extern "C" __global__ void rms_norm_grad_x(const float* x, const float* w, const float* inv, const float* grad_y,
                                           float* grad_x, int columns) {
    size_t row = (size_t)blockIdx.x * columns;
    float scale = inv[blockIdx.x], dot = 0;
    for (int c = threadIdx.x; c < columns; c += 32) dot += grad_y[row + c] * w[c] * x[row + c];
    float pull = warp_sum(dot) * scale * scale / columns;
    for (int c = threadIdx.x; c < columns; c += 32)
        grad_x[row + c] = scale * (grad_y[row + c] * w[c] - x[row + c] * pull);
}

// One thread a column, one block row a chunk of rows.
extern "C" __global__ void rms_norm_grad_w(const float* x, const float* inv, const float* grad_y, float* partial,
                                           int rows, int columns, int chunk) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * chunk;
    if (c >= columns) return;
    float sum = 0;
    for (int r = first; r < min(first + chunk, rows); ++r)
        sum += grad_y[(size_t)r * columns + c] * x[(size_t)r * columns + c] * inv[r];
    partial[(size_t)blockIdx.y * columns + c] = sum;
}
"""


def one_warp_a_row(x: tfi.TensorSpec) -> tfi.LaunchConfig:
    """Return the geometry of the row kernels."""
    rows = x.size // x.shape[-1]
    return tfi.LaunchConfig(grid=rows, block=32) if rows else tfi.LaunchConfig.flat(0)


def columns_by_chunks(partial: tfi.TensorSpec) -> tfi.LaunchConfig:
    """Return the geometry of the weight's gradient."""
    chunks, columns = partial.shape
    return tfi.LaunchConfig((-(-columns // 64), chunks), 64) if chunks else tfi.LaunchConfig.flat(0)


LAST = {"columns": lambda x: x.shape[-1]}
grad_x = op(
    tfi.KernelSpec(SOURCE, "rms_norm_grad_x", outputs={"grad_x": "x"}, values=LAST, config=one_warp_a_row),
    "tfi_example::rms_norm_grad_x",
)
grad_w = op(
    tfi.KernelSpec(
        SOURCE,
        "rms_norm_grad_w",
        outputs={"partial": lambda x: ((x.size // x.shape[-1] + CHUNK - 1) // CHUNK, x.shape[-1])},
        values=LAST | {"rows": lambda x: x.size // x.shape[-1], "chunk": lambda: CHUNK},
        config=columns_by_chunks,
    ),
    "tfi_example::rms_norm_grad_w",
)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Keep what backward reads; 1/rms itself is not to be differentiated."""
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def backward(ctx: Any, grad_y: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of x, w and epsilon."""
    x, w, inv = ctx.saved_tensors
    return grad_x(x, w, inv, grad_y), grad_w(x, inv, grad_y).sum(0), None


rms_norm = op(
    tfi.KernelSpec(
        SOURCE, "rms_norm", outputs={"y": "x", "inv": lambda x: x.shape[:-1]}, values=LAST, config=one_warp_a_row
    ),
    "tfi_example::rms_norm",
    backward=backward,
    setup_context=setup_context,
    vmap=["x"],
)


class KernelNorm(nn.Module):
    """RMSNorm by our kernels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last axis."""
        return rms_norm(x, self.weight, EPSILON)[0]


class PlainNorm(KernelNorm):
    """RMSNorm by PyTorch's operations."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last axis."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * self.weight


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each behind a norm."""

    def __init__(self, norm: type[KernelNorm]) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(WIDTH) for _ in range(2))
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both layers to the residual stream."""
        batch, length, _ = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """A character model."""

    def __init__(self, norm: type[KernelNorm], symbols: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block(norm) for _ in range(LAYERS)))
        self.norm, self.head = norm(WIDTH), nn.Linear(WIDTH, symbols)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def sums_in_words() -> str:
    """Return the text: all sums of two digits, written out."""
    digits = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    teens = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"]
    names = [*digits, *teens]
    return "".join(
        f"{names[a]} and {names[b]} make {names[a + b]}. " for a, b in itertools.product(range(10), repeat=2)
    )


def batches(device: str) -> tuple[torch.Tensor, int]:
    """Return all batches of the training, the same in every run, and the number of symbols."""
    text = sums_in_words()
    symbols = sorted(set(text))
    tokens = torch.tensor([symbols.index(c) for c in text])
    starts = torch.randint(len(text) - CONTEXT - 1, (STEPS, BATCH), generator=torch.Generator().manual_seed(7))
    return tokens[starts[..., None] + torch.arange(CONTEXT + 1)].to(device), len(symbols)


def train(
    norm: type[KernelNorm], device: str, wrap: Callable[[nn.Module], Any] = lambda model: model
) -> tuple[list[float], float]:
    """Train from the same start; return the losses and the median milliseconds of a step."""
    data, symbols = batches(device)
    torch.manual_seed(0)
    model = Transformer(norm, symbols).to(device)
    optimizer, run = torch.optim.AdamW(model.parameters(), lr=3e-3), wrap(model)
    losses, times = [], []
    for batch in data:
        start = time.perf_counter()
        loss = functional.cross_entropy(run(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return [float(loss) for loss in losses], statistics.median(times)


def plot(curves: dict[str, list[float]], path: Path) -> None:
    """Draw the losses as SVG."""
    left, top, wide, high = 50, 30, 560, 280
    greatest = max(max(curve) for curve in curves.values())
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + 80}" height="{high + 70}" font-size="12">']
    for tick in range(int(greatest) + 1):
        y = top + high * (1 - tick / greatest)
        out.append(f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{tick}</text>')
        out.append(f'<path d="M{left} {y:.1f}h{wide}" stroke="#ddd"/>')
    for index, (name, curve) in enumerate(curves.items()):
        colour, width = ("#a0aec0", 5) if index == 0 else ("#2b6cb0", 1.5)
        points = (f"{left + wide * i / STEPS:.1f},{top + high * (1 - v / greatest):.1f}" for i, v in enumerate(curve))
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        out.append(f'<text x="{left + 300}" y="{top + 20 + 18 * index}" fill="{colour}">{name}</text>')
    out.append(f'<text x="{left}" y="{high + top + 20}">step 0 to {STEPS}; loss of the next character</text></svg>')
    path.write_text("\n".join(out) + "\n")


def main() -> int:
    """Train both, compare, print the times, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="folder for loss.svg")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    expected, plain_ms = train(PlainNorm, options.device)
    losses, kernel_ms = train(KernelNorm, options.device)
    rows = {"plain torch": plain_ms, "our kernels": kernel_ms}
    if options.device == "cuda":
        rows["plain torch, torch.compile"] = train(PlainNorm, options.device, torch.compile)[1]
        rows["our kernels, torch.compile"] = train(KernelNorm, options.device, torch.compile)[1]
    for name, milliseconds in rows.items():
        print(f"{name:<28}{milliseconds:8.2f} ms a step")
    difference = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
    is_ok = difference <= TOLERANCE and losses[-1] < 0.5 * losses[0]
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        plot({"plain torch": expected, "our kernels": losses}, options.out / "loss.svg")
    print(
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, plain torch {expected[0]:.3f} -> {expected[-1]:.3f}, greatest "
        f"difference {difference:.1e}: {'ok' if is_ok else 'NOT OK'}"
    )
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
