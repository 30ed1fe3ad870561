"""axpy in Triton, in a file of its own because Triton reads the source."""

import triton
import triton.language as tl


@triton.jit
def axpy(a, x, y, n, BLOCK: tl.constexpr):
    """Y = a * x + y."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y + i, a * tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)
