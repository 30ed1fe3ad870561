"""Whole CUDA programs on the CPU device, large enough to use all of its threads."""

import ctypes

import numpy as np
import pytest

import tenferro_interop as tfi

SAXPY = """
extern "C" __global__ void k(float a, const float* __restrict__ x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}"""

TRANSPOSE = """
#define TILE 32
#define ROWS 8
extern "C" __global__ void k(float* out, const float* in, int w, int h) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (x < w && y + j < h) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (x < h && y + j < w) out[(y + j) * h + x] = tile[threadIdx.x][threadIdx.y + j];
}"""

REDUCE = """
__inline__ __device__ float warp_sum(float v) {
  for (int o = warpSize / 2; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
  return v;
}
extern "C" __global__ void k(const float* in, float* out, int n) {
  static __shared__ float part[32];
  float s = 0.f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) s += in[i];
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  s = threadIdx.x < blockDim.x / warpSize ? part[lane] : 0.f;
  if (warp == 0) s = warp_sum(s);
  if (threadIdx.x == 0) atomicAdd(out, s);
}"""

HISTOGRAM = """
extern "C" __global__ void k(const unsigned char* data, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) if (local[i]) atomicAdd(&bins[i], local[i]);
}"""

FUNCTOR = """
template <typename T> struct Affine {
  T a, b;
  __device__ __forceinline__ T operator()(T v) const { return a * v + b; }
};
template <typename T> struct Twice {
  T limit;
  template <class F> __device__ T apply(F f, T v) const { T r = f(f(v)); return r > limit ? limit : r; }
};
template <typename T, typename F> __global__ void map(const T* in, T* out, int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto limited = [=](T v) { return Twice<T>{T(100)}.apply(f, v); };
  if (i < n) out[i] = limited(in[i]);
}"""

SOFTMAX = """
template <class Op> __device__ float block_reduce(float* s, float v, Op op) {
  s[threadIdx.x] = v;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step >>= 1) {
    if (threadIdx.x < step) s[threadIdx.x] = op(s[threadIdx.x], s[threadIdx.x + step]);
    __syncthreads();
  }
  float result = s[0];
  __syncthreads();
  return result;
}
extern "C" __global__ void k(const float* in, float* out, int columns) {
  extern __shared__ float s[];
  const float* row = in + (size_t)blockIdx.x * columns;
  float top = __int_as_float(0xff800000), sum = 0.f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) top = fmaxf(top, row[c]);
  top = block_reduce(s, top, [](float a, float b) { return fmaxf(a, b); });
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += __expf(row[c] - top);
  sum = block_reduce(s, sum, [](float a, float b) { return a + b; });
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    out[(size_t)blockIdx.x * columns + c] = __expf(row[c] - top) / sum;
}"""

MATMUL = """
template <int T> __device__ void body(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[T][T], Bs[T][T];
  int r = blockIdx.y * T + threadIdx.y, c = blockIdx.x * T + threadIdx.x;
  float acc = 0.f;
  for (int t = 0; t < (K + T - 1) / T; ++t) {
    int ka = t * T + threadIdx.x, kb = t * T + threadIdx.y;
    As[threadIdx.y][threadIdx.x] = r < M && ka < K ? A[r * K + ka] : 0.f;
    Bs[threadIdx.y][threadIdx.x] = kb < K && c < N ? B[kb * N + c] : 0.f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < T; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (r < M && c < N) C[r * N + c] = acc;
}
extern "C" __global__ void __launch_bounds__(256) k(const float* A, const float* B, float* C, int M, int N, int K) {
  body<16>(A, B, C, M, N, K);
}"""

SCAN = """
extern "C" __global__ void k(const int* in, int* out, int n) {
  extern __shared__ int temp[];
  int tid = threadIdx.x, base = blockIdx.x * blockDim.x, pout = 0, pin = 1, B = blockDim.x;
  temp[tid] = base + tid < n ? in[base + tid] : 0;
  __syncthreads();
  for (int off = 1; off < B; off <<= 1) {
    pout = 1 - pout;
    pin = 1 - pout;
    temp[pout * B + tid] = temp[pin * B + tid] + (tid >= off ? temp[pin * B + tid - off] : 0);
    __syncthreads();
  }
  if (base + tid < n) out[base + tid] = temp[pout * B + tid];
}"""


def launch(source: str, grid: object, block: object, args: list[object], *, shared: int = 0, name: str = "k") -> None:
    with tfi.session("cpu") as session:
        options = tfi.NvrtcOptions(name_expressions=() if name == "k" else (name,))
        function = session.compile_nvrtc(source, options).function(name)
        session.launch(function, tfi.LaunchConfig(grid, block, shared_mem_bytes=shared), args)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_saxpy(rng: np.random.Generator) -> None:
    n = 100_003
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    expected = 2.0 * x + y
    launch(SAXPY, (n + 255) // 256, 256, [2.0, x, y, n])
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_transpose(rng: np.random.Generator) -> None:
    width, height = 200, 301
    source, out = rng.random((height, width), np.float32), np.zeros((width, height), np.float32)
    launch(TRANSPOSE, (7, 10), (32, 8), [out, source, width, height])
    np.testing.assert_array_equal(out, source.T)


def test_reduction_by_shuffles(rng: np.random.Generator) -> None:
    x, total = rng.random(200_000, np.float32), np.zeros(1, np.float32)
    launch(REDUCE, 64, 256, [x, total, x.size])
    np.testing.assert_allclose(total[0], x.sum(dtype=np.float64), rtol=1e-4)


def test_histogram(rng: np.random.Generator) -> None:
    data, bins = rng.integers(0, 256, 200_000, dtype=np.uint8), np.zeros(256, np.uint32)
    launch(HISTOGRAM, 32, 256, [data, bins, data.size])
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))


def test_functor_by_value(rng: np.random.Generator) -> None:
    x, out = rng.random(1000), np.zeros(1000)
    affine = (ctypes.c_double * 2)(3.0, 2.0)
    arguments = [x, out, 1000, tfi.KernelArg.struct(bytes(affine))]
    launch(FUNCTOR, 4, 256, arguments, name="map<double, Affine<double>>")
    np.testing.assert_allclose(out, 9 * x + 8)


def test_softmax(rng: np.random.Generator) -> None:
    x = rng.random((64, 500), np.float32)
    out, powers = np.zeros_like(x), np.exp(x - x.max(1, keepdims=True))
    launch(SOFTMAX, 64, 256, [x, out, 500], shared=1024)
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_tiled_matrix_product(rng: np.random.Generator) -> None:
    a, b = rng.random((70, 90), np.float32), rng.random((90, 50), np.float32)
    out = np.zeros((70, 50), np.float32)
    launch(MATMUL, (4, 5), (16, 16), [a, b, out, 70, 50, 90])
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_block_scan(rng: np.random.Generator) -> None:
    x = rng.integers(0, 9, 25_600, dtype=np.int32)
    out = np.zeros_like(x)
    launch(SCAN, 100, 256, [x, out, x.size], shared=2048)
    np.testing.assert_array_equal(out.reshape(-1, 256), x.reshape(-1, 256).cumsum(1))
