"""A 2-D image filter: 5 x 5 Gaussian blur, then Sobel edges, on an image that the example draws itself.

The blur loads each block's tile, with a border of two pixels, into shared memory; the edge kernel is a plain 2-D
stencil.  Both use a two-dimensional grid.  The results are compared with a NumPy reference and saved as PNG files, by
a writer of a few lines, so that nothing but NumPy is needed.

    python examples/image_filter.py [--device cpu|cuda] [--out DIR]

Without `--device` it takes the first GPU, else the CPU device.  The images go to `DIR` (default: out).
"""

import argparse
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

import tenferro_interop as tfi

HEIGHT, WIDTH, TILE = 480, 640, 16
WEIGHTS = np.array([1, 4, 6, 4, 1], np.float32) / 16

SOURCE = r"""
#define RADIUS 2
#define SIDE (TILE + 2 * RADIUS)

struct Weights { float w[2 * RADIUS + 1]; };  // by value: read from the parameter space, no upload

__device__ int clamped(int i, int n) { return i < 0 ? 0 : i < n ? i : n - 1; }

extern "C" __global__ void blur(const float* image, float* out, int height, int width, Weights weights) {
    __shared__ float tile[SIDE][SIDE];
    int left = blockIdx.x * TILE - RADIUS, top = blockIdx.y * TILE - RADIUS;
    for (int ty = threadIdx.y; ty < SIDE; ty += TILE)
        for (int tx = threadIdx.x; tx < SIDE; tx += TILE)
            tile[ty][tx] = image[clamped(top + ty, height) * width + clamped(left + tx, width)];
    __syncthreads();
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0;
    for (int dy = 0; dy <= 2 * RADIUS; ++dy)
        for (int dx = 0; dx <= 2 * RADIUS; ++dx)
            sum += weights.w[dy] * weights.w[dx] * tile[threadIdx.y + dy][threadIdx.x + dx];
    out[y * width + x] = sum;
}

extern "C" __global__ void sobel(const float* image, float* out, int height, int width) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x >= width || y >= height) return;
    const float* above = image + clamped(y - 1, height) * width;
    const float* here = image + y * width;
    const float* below = image + clamped(y + 1, height) * width;
    int l = clamped(x - 1, width), r = clamped(x + 1, width);
    float gx = above[r] + 2 * here[r] + below[r] - above[l] - 2 * here[l] - below[l];
    float gy = below[l] + 2 * below[x] + below[r] - above[l] - 2 * above[x] - above[r];
    out[y * width + x] = sqrtf(gx * gx + gy * gy);
}
"""


def draw() -> np.ndarray:
    """Draw rings, a bright square and a little noise, in the range 0 to 1."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    image = 0.5 + 0.4 * np.sin(np.hypot(x - WIDTH / 3, y - HEIGHT / 2) / 9)
    image[60:180, 420:560] = 0.95
    image += 0.05 * np.random.default_rng(seed=7).standard_normal(image.shape)
    return image.clip(0, 1).astype(np.float32)


def filtered(image: np.ndarray, device: str | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the blurred image, its edges, and the device they were made on."""
    with tfi.session(device) as s:
        module = s.compile_nvrtc(SOURCE, tfi.NvrtcOptions(defines={"TILE": str(TILE)}))
        pixels = s.upload_bytes(image.tobytes())
        blurred, edges = (s.alloc_output(image.shape, "float32") for _ in range(2))
        tiles = tfi.LaunchConfig(grid=(-(-WIDTH // TILE), -(-HEIGHT // TILE)), block=(TILE, TILE))
        weights = tfi.KernelArg.struct(WEIGHTS)
        s.launch(module.function("blur"), tiles, [pixels, blurred, HEIGHT, WIDTH, weights])
        s.launch(module.function("sobel"), tiles, [blurred, edges, HEIGHT, WIDTH])
        return s.download_tensor(blurred), s.download_tensor(edges), s.device


def reference(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Do the same with NumPy in float64."""
    padded = np.pad(image.astype(np.float64), 2, mode="edge")
    taps = [(dy, dx, WEIGHTS[dy] * WEIGHTS[dx]) for dy in range(5) for dx in range(5)]
    blurred = sum(weight * padded[dy : dy + HEIGHT, dx : dx + WIDTH] for dy, dx, weight in taps)
    p = np.pad(blurred, 1, mode="edge")
    gx = (p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[1:-1, :-2] + p[2:, :-2])
    gy = (p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[:-2, 1:-1] + p[:-2, 2:])
    return blurred, np.hypot(gx, gy)


def write_png(path: Path, image: np.ndarray) -> None:
    """Save values between 0 and 1 as an 8-bit grey PNG."""
    grey = (image.clip(0, 1) * 255).round().astype(np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in grey)  # each row starts with its filter type, 0 = none
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in chunks:
        data += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    path.write_bytes(data)


def main() -> int:
    """Filter, compare, save; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: the first GPU, else the CPU device")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the images")
    options = parser.parse_args()
    image = draw()
    blurred, edges, device = filtered(image, options.device)
    results = dict(zip(("blur", "sobel"), zip((blurred, edges), reference(image), strict=True), strict=True))
    options.out.mkdir(parents=True, exist_ok=True)
    write_png(options.out / "image.png", image)
    is_good = True
    print(f"{'op':<8}{'device':<8}{'max abs error':>14}  ok   file")
    for op, (got, expected) in results.items():
        error = float(np.abs(got - expected).max())
        is_ok = error <= 1e-5
        is_good &= is_ok
        write_png(options.out / f"{op}.png", got)
        print(f"{op:<8}{device:<8}{error:>14.2e}  {'yes' if is_ok else 'NO':<4} {options.out / f'{op}.png'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
