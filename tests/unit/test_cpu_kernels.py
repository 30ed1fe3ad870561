"""Language features of CUDA C++ on the CPU device, one small kernel each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tenferro_interop as tfi

LANES = np.arange(32)


@dataclass(frozen=True)
class Case:
    """A kernel `k`, its launch, fresh arguments, and what its last argument must hold afterwards."""

    name: str
    source: str
    block: int | Sequence[int]
    args: Callable[[], list[object]]
    expected: object
    grid: int | Sequence[int] = 1
    shared: int = 0
    kernel: str = "k"


def zeros(n: int, dtype: object = np.int32) -> Callable[[], list[object]]:
    return lambda: [np.zeros(n, dtype)]


INDEXING = [
    Case(
        "3-D grid and block",
        """__global__ void k(int* o) {
          int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
          int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
          o[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t; }""",
        (4, 2, 3), zeros(12 * 24), (np.arange(12)[:, None] * 1000 + np.arange(24)).ravel(), grid=(2, 3, 2),
    ),
    Case(
        "3-D block that waits",
        """__global__ void k(int* o) {
          int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
          __syncthreads(); o[t] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z; }""",
        (3, 4, 5), zeros(60), [x + 10 * y + 100 * z for z in range(5) for y in range(4) for x in range(3)],
    ),
    Case("1024-thread block",
         """__global__ void k(int* o) { __shared__ int s[1024]; s[threadIdx.x] = threadIdx.x; __syncthreads();
           o[threadIdx.x] = s[1023 - threadIdx.x]; }""",
         1024, zeros(1024), np.arange(1024)[::-1]),
    Case("identifiers that OpenCL reserves",
         """__global__ void k(int* global) { int local = threadIdx.x, kernel = 1, half2_ = 2, index = 3;
           global[local] = kernel + half2_ + index; }""",
         8, zeros(8), [6] * 8),
]  # fmt: skip

WARPS = [
    Case("lanes are linear in an 8x8 block",
         """__global__ void k(int* o) { int t = threadIdx.y * 8 + threadIdx.x;
           o[t] = __shfl_down_sync(0xffffffff, t, 1); }""",
         (8, 8), zeros(64), [t + 1 if t % 32 < 31 else t for t in range(64)]),
    Case("shfl with width, xor, up",
         """__global__ void k(int* o) { int t = threadIdx.x;
           o[t] = __shfl_sync(~0u, t, 3, 8) * 10000 + __shfl_xor_sync(~0u, t, 5) * 100
             + __shfl_up_sync(~0u, t, 2); }""",
         32, zeros(32), (LANES // 8 * 8 + 3) * 10000 + (LANES ^ 5) * 100 + np.where(LANES >= 2, LANES - 2, LANES)),
    Case("shuffle of 8-byte types",
         """__global__ void k(double* o) { double v = threadIdx.x + 0.5;
           for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
           long long q = __shfl_sync(~0u, (long long)threadIdx.x << 40, 7);
           o[threadIdx.x] = v + (double)(q >> 40); }""",
         32, zeros(32, np.float64), [519.0] * 32),
    Case("ballot, any, all",
         """__global__ void k(unsigned* o) { unsigned t = threadIdx.x; o[t] = __ballot_sync(~0u, t % 3 == 0)
           + (__any_sync(~0u, t == 99) ? 1 : 0) + (__all_sync(~0u, t < 32) ? 2 : 0); }""",
         32, zeros(32, np.uint32), [sum(1 << t for t in range(0, 32, 3)) + 2] * 32),
    Case("match_any and reduce_add",
         "__global__ void k(unsigned* o) { unsigned t = threadIdx.x; "
         "o[t] = __match_any_sync(~0u, t % 4) + __reduce_add_sync(~0u, 1u); }",
         32, zeros(32, np.uint32), [sum(1 << j for j in range(t % 4, 32, 4)) + 32 for t in range(32)]),
    Case("match_all, reduce_min and reduce_max of a partial warp",
         """__global__ void k(int* o) { int t = threadIdx.x, same; __match_all_sync(~0u, 5, &same);
           o[t] = __reduce_max_sync(~0u, t) * 100 + __reduce_min_sync(~0u, t + 3) * 10 + same; }""",
         20, zeros(20), [1931] * 20),
    Case("half-warps in divergent branches",
         """__global__ void k(int* o) { int t = threadIdx.x, v = t;
           if (t < 16) { for (int d = 8; d; d >>= 1) v += __shfl_xor_sync(0x0000ffffu, v, d); }
           else { for (int d = 8; d; d >>= 1) v = max(v, __shfl_xor_sync(0xffff0000u, v, d)); }
           o[t] = v; }""",
         32, zeros(32), [120] * 16 + [31] * 16),
    Case("full masks in a block of 40 threads",
         """__global__ void k(int* o) { int v = 1; for (int d = 16; d; d >>= 1) { int u = __shfl_down_sync(~0u, v, d);
           if ((threadIdx.x & 31) + d < 32 && threadIdx.x + d < blockDim.x) v += u; }
           o[threadIdx.x] = (threadIdx.x & 31) == 0 ? v : 0; }""",
         40, zeros(40), [32] + [0] * 31 + [8] + [0] * 7),
    Case("syncwarp orders shared memory",
         """__global__ void k(int* o) { __shared__ int s[32]; s[threadIdx.x] = threadIdx.x; __syncwarp();
           o[threadIdx.x] = s[31 - threadIdx.x]; }""",
         32, zeros(32), LANES[::-1]),
    Case("cooperative groups",
         """#include <cooperative_groups.h>
         #include <cooperative_groups/reduce.h>
         namespace cg = cooperative_groups;
         __global__ void k(int* o) { auto b = cg::this_thread_block(); auto t = cg::tiled_partition<16>(b);
           int v = b.thread_rank(); int r = cg::reduce(t, v, cg::plus<int>());
           for (int d = 8; d; d /= 2) v += t.shfl_down(v, d); b.sync();
           if (t.thread_rank() == 0) o[b.thread_rank() / 16] = v == r ? v : -1; }""",
         64, zeros(4), [120, 376, 632, 888]),
]  # fmt: skip

BARRIERS = [
    Case("syncthreads_count, and, or",
         """__global__ void k(int* o) { int t = threadIdx.x; int c = __syncthreads_count(t % 3 == 0),
           x = __syncthreads_and(t < 100), y = __syncthreads_or(t == 63);
           o[t] = c * 100 + (x ? 10 : 0) + (y ? 1 : 0); }""",
         100, zeros(100), [3411] * 100),
    Case("early return, then a barrier by the rest",
         """__global__ void k(int* o) { __shared__ int s; int t = threadIdx.x; if (t >= 40) return; if (t == 0) s = 5;
           __syncthreads(); o[t] = s; }""",
         64, zeros(64), [5] * 40 + [0] * 24),
    Case("barriers in a loop with a uniform break",
         """__global__ void k(int* o) { __shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();
           for (;;) { int v = s[(t + 1) & 63]; __syncthreads(); s[t] = v; __syncthreads(); if (s[0] >= 10) break;
             __syncthreads(); }
           o[t] = s[t]; }""",
         64, zeros(64), (np.arange(64) + 10) % 64),
    Case("a thread waits for a later thread by yielding",
         """__global__ void k(int* o) { __shared__ volatile int flag; if (threadIdx.x == 0) { flag = 0; }
           __syncthreads(); if (threadIdx.x == 0) while (!flag) __nanosleep(1); else flag = 1; o[threadIdx.x] = 1; }""",
         4, zeros(4), [1] * 4),
]  # fmt: skip

# Right, but a race in the eyes of check mode, which knows barriers and atomics only.
HAND_MADE_SYNCHRONISATION = [
    Case("block i waits for block i-1",
         """__global__ void k(volatile int* flag, int* o) { if (threadIdx.x) return; int b = blockIdx.x;
           if (b > 0) while (flag[b - 1] == 0) __threadfence(); o[b] = b ? o[b - 1] + 1 : 1; __threadfence();
           flag[b] = 1; }""",
         32, lambda: [np.zeros(200, np.int32), np.zeros(200, np.int32)], np.arange(200) + 1, grid=200),
    Case("spin lock",
         """__device__ int lock = 0; __global__ void k(int* o) { bool done = false; while (!done)
           if (atomicCAS(&lock, 0, 1) == 0) { *o += 1; __threadfence(); atomicExch(&lock, 0); done = true; } }""",
         64, zeros(1), [256], grid=4),
]  # fmt: skip

MEMORY = [
    Case("integer atomics",
         """__global__ void k(int* o) { atomicAdd(o, 2); atomicSub(o + 1, 1); atomicMax(o + 2, (int)threadIdx.x);
           atomicMin(o + 3, -(int)threadIdx.x); atomicOr(o + 4, 1 << (threadIdx.x & 7)); atomicXor(o + 5, 1);
           atomicAnd(o + 6, 0); atomicExch(o + 7, 7); atomicAdd_block(o + 8, 1); atomicAdd_system(o + 8, 1); }""",
         64, zeros(9), [1024, -512, 63, -63, 255, 0, 0, 7, 1024], grid=8),
    Case("unsigned atomics: inc, dec, CAS",
         """__global__ void k(unsigned* o) { atomicInc(o, 99u); atomicDec(o + 1, 9u); unsigned seen = o[2], old;
           do { old = seen; seen = atomicCAS(o + 2, old, old + 2); } while (seen != old); }""",
         64, zeros(3, np.uint32), [12, 8, 1024], grid=8),
    Case("floating point and 64-bit atomics",
         """__global__ void k(unsigned long long* q, float* f, double* o) { atomicAdd(q, 1ull << 33);
           atomicAdd(f, 0.5f); atomicAdd(o, 0.25); if (threadIdx.x == 63) atomicAdd(o, (double)(*q >> 60)); }""",
         64, lambda: [np.zeros(1, np.uint64), np.zeros(1, np.float32), np.zeros(1, np.float64)], [128.0], grid=8),
    Case("__constant__ and __device__ variables",
         """__constant__ float table[4] = {1.f, 2.f, 4.f, 8.f}; __device__ int counter;
         __global__ void k(float* o) { o[threadIdx.x] = table[threadIdx.x & 3]; atomicAdd(&counter, 1); __syncthreads();
           o[threadIdx.x] += counter; }""",
         32, zeros(32, np.float32), np.tile([33, 34, 36, 40], 8)),
    Case("vector loads and stores",
         """__global__ void k(const float* x, float* o) { float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];
           reinterpret_cast<float4*>(o)[threadIdx.x] = make_float4(v.w, v.z, v.y, v.x); }""",
         16, lambda: [np.arange(64, dtype=np.float32), np.zeros(64, np.float32)],
         np.arange(64).reshape(16, 4)[:, ::-1].ravel()),
    Case("sizes of vector types",
         "__global__ void k(int* o) { o[0] = sizeof(float3); o[1] = sizeof(float4); o[2] = alignof(float4); "
         "o[3] = alignof(float2); o[4] = sizeof(uchar4); o[5] = alignof(double2); o[6] = alignof(short4); }",
         1, zeros(7), [12, 16, 16, 8, 4, 16, 8]),
    Case("arrays carved from dynamic shared memory",
         """__global__ void k(double* o) { extern __shared__ __align__(16) unsigned char raw[];
           double* d = reinterpret_cast<double*>(raw); int* i = reinterpret_cast<int*>(d + blockDim.x);
           int t = threadIdx.x; d[t] = t * 0.5; i[t] = t; __syncthreads(); o[t] = d[31 - t] + i[(t + 1) & 31]; }""",
         32, zeros(32, np.float64), (31 - LANES) * 0.5 + (LANES + 1) % 32, shared=32 * 12),
    Case("dynamic shared memory in a function template",
         """template <class T> __device__ T* buffer() { extern __shared__ unsigned char mem[]; return (T*)mem; }
         __global__ void k(float* o) { float* s = buffer<float>(); s[threadIdx.x] = threadIdx.x; __syncthreads();
           o[threadIdx.x] = s[31 - threadIdx.x]; }""",
         32, zeros(32, np.float32), 31 - LANES, shared=128),
    Case("dynamic shared memory at file scope",
         """extern __shared__ float rows[][2]; __global__ void k(float* o) { rows[threadIdx.x][1] = threadIdx.x;
           __syncthreads(); o[threadIdx.x] = rows[31 - threadIdx.x][1]; }""",
         32, zeros(32, np.float32), 31 - LANES, shared=256),
    Case("one name, two types of dynamic shared memory",
         """template <class T> __device__ T get(int i) { extern __shared__ alignas(16) T s[]; s[i] = (T)(i + 1);
           return s[i]; }
         __global__ void k(float* o) { o[0] = get<float>(0) + get<double>(1) + get<int>(2); }""",
         1, zeros(1, np.float32), [6], shared=64),
    Case("2-D static shared memory in a class template",
         """template <int N> struct K { __device__ static void run(int* o) { static __shared__ int s[N][N + 1];
           s[threadIdx.y][threadIdx.x] = threadIdx.y * N + threadIdx.x; __syncthreads();
           o[threadIdx.y * N + threadIdx.x] = s[threadIdx.x][threadIdx.y]; } };
         __global__ void k(int* o) { K<8>::run(o); }""",
         (8, 8), zeros(64), np.arange(64).reshape(8, 8).T.ravel()),
    Case("16 KiB of local array in each waiting thread",
         """__global__ void k(int* o) { int a[4096]; for (int i = 0; i < 4096; i++) a[i] = i + threadIdx.x;
           __syncthreads(); o[threadIdx.x] = a[4095]; }""",
         64, zeros(64), 4095 + np.arange(64)),
]  # fmt: skip

LANGUAGE = [
    Case("lambda that captures by reference",
         """template <class F> __device__ void each(int n, F f) { for (int i = 0; i < n; i++) f(i); }
         __global__ void k(int* o) { int s = 0; each(10, [&](int i) { s += i * (int)threadIdx.x; });
           o[threadIdx.x] = s; }""",
         32, zeros(32), 45 * LANES),
    Case("if constexpr, folds, variadic templates",
         """template <class... T> __device__ int sum(T... t) { return (t + ... + 0); }
         template <int N> __device__ int f() { if constexpr (N > 2) return N; else return sum(1, 2, 3); }
         __global__ void k(int* o) { o[threadIdx.x] = f<1>() + f<7>(); }""",
         4, zeros(4), [13] * 4),
    Case("recursion",
         """__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
         __global__ void k(int* o) { o[threadIdx.x] = fib(threadIdx.x); }""",
         12, zeros(12), [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]),
    Case("function pointers",
         """__device__ int a1(int x) { return x + 1; } __device__ int a2(int x) { return x * 2; }
         __global__ void k(int* o) { int (*f)(int) = (threadIdx.x & 1) ? a1 : a2; o[threadIdx.x] = f(threadIdx.x); }""",
         8, zeros(8), [0, 2, 4, 4, 8, 6, 12, 8]),
    Case("virtual call",
         """struct B { __device__ virtual int f(int x) { return x; } };
         struct D : B { __device__ int f(int x) override { return x * 3; } };
         __global__ void k(int* o) { D d; B* b = &d; o[threadIdx.x] = b->f(threadIdx.x); }""",
         8, zeros(8), 3 * np.arange(8)),
    Case("kernel template in a namespace",
         "namespace ns { template <class T, int N> __global__ void kk(T* o) { o[threadIdx.x] = (T)N; } }",
         8, zeros(8, np.float32), [5] * 8, kernel="ns::kk<float, 5>"),
    Case("overload by name expression",
         "__global__ void k(int* o) { *o = 1; } __global__ void k(float* o) { *o = 2; }",
         1, zeros(1, np.float32), [2], kernel="(void (*)(float*))k"),
    Case("kernel made by a macro, in an active branch",
         """#define KERNEL(NAME, VALUE) __global__ void NAME(int* o) { *o = VALUE; }
         #if 0
         KERNEL(k, 1)
         #else
         KERNEL(k, 2)
         #endif""",
         1, zeros(1), [2]),
    Case("__half arithmetic",
         """#include <cuda_fp16.h>
         __global__ void k(const __half* x, __half* o) { int t = threadIdx.x;
           __half2 p = __floats2half2_rn(0.5f, 2.0f); o[t] = __hadd(x[t], __low2half(p)) * __high2half(p); }""",
         32, lambda: [np.arange(32, dtype=np.float16), np.zeros(32, np.float16)], (LANES + 0.5) * 2),
    Case("__nv_bfloat16 rounds to nearest even",
         """#include <cuda_bf16.h>
         __global__ void k(const float* x, unsigned short* o) {
           o[threadIdx.x] = __bfloat16_as_ushort(__float2bfloat16(x[threadIdx.x])); }""",
         4, lambda: [np.array([1.0, 1.00390625, 1.01171875, np.inf], np.float32), np.zeros(4, np.uint16)],
         [0x3F80, 0x3F80, 0x3F82, 0x7F80]),
    Case("8-bit floating point",
         """#include <cuda_fp8.h>
         __global__ void k(const float* x, float* o) { int t = threadIdx.x; o[t] = float(__nv_fp8_e4m3(x[t]));
           o[t + 4] = float(__nv_fp8_e5m2(x[t])); }""",
         4, lambda: [np.array([1.0625, -1000, 0.001, 1.1875], np.float32), np.zeros(8, np.float32)],
         [1.0, -448, 2**-9 * 1, 1.25, 1.0, -1024, 2**-10, 1.25]),
    Case("math functions",
         """__global__ void k(float* o) { float x = 0.7f, s, c; sincosf(x, &s, &c); o[0] = s; o[1] = c;
           o[2] = rsqrtf(x); o[3] = erff(x); o[4] = powf(x, 1.5f); o[5] = fmaf(x, x, 1.f); o[6] = lgammaf(x);
           o[7] = roundf(2.5f); o[8] = __fdividef(1.f, x); o[9] = fminf(x, 1.f); o[10] = exp2f(x); o[11] = log1pf(x);
           o[12] = normcdff(0.f); o[13] = sinpif(1.f); o[14] = cospif(1.f); o[15] = __saturatef(2.f); }""",
         1, zeros(16, np.float32),
         [np.sin(0.7), np.cos(0.7), 0.7**-0.5, 0.6778012, 0.7**1.5, 1.49, 0.2608672, 3, 1 / 0.7, 0.7, 2**0.7,
          np.log1p(0.7), 0.5, 0, -1, 1]),
    Case("overloads of math functions",
         """__global__ void k(float* o) { o[0] = sizeof(exp(1.f)); o[1] = sizeof(exp(1.0)); o[2] = sizeof(sqrt(4));
           o[3] = abs(-2.5f); o[4] = max(1, 2u); o[5] = min(1.5f, 2); o[6] = fmaxf(NAN, 3.f); o[7] = min(NAN, 4.f);
           o[8] = isnan(NAN) + isinf(INFINITY); o[9] = pow(2.f, 3); }""",
         1, zeros(10, np.float32), [4, 8, 8, 2.5, 2, 1.5, 3, 4, 2, 8]),
    Case("integer intrinsics",
         """__global__ void k(unsigned* o) { o[0] = __clz(256); o[1] = __ffs(256); o[2] = __brev(1u);
           o[3] = __umulhi(0x80000000u, 6u); o[4] = __popcll(0xffull); o[5] = __byte_perm(0x11223344u, 0u, 0x0123u);
           o[6] = __funnelshift_l(0x80000000u, 1u, 1); o[7] = __mul24(3, 5); o[8] = __float2int_rn(2.5f);
           o[9] = __float2uint_rz(-1.f); o[10] = __float2int_rz(3e9f); }""",
         1, zeros(11, np.uint32), [23, 9, 1 << 31, 3, 8, 0x44332211, 3, 15, 2, 0, 2**31 - 1]),
]  # fmt: skip


BARRIER_SYNCHRONISED = INDEXING + WARPS + BARRIERS + MEMORY + LANGUAGE


def run(case: Case, *, check: bool) -> object:
    args, names = case.args(), () if case.kernel == "k" else (case.kernel,)
    with tfi.session("cpu") as session:
        module = session.compile_nvrtc(case.source, tfi.NvrtcOptions(name_expressions=names, check=check))
        config = tfi.LaunchConfig(case.grid, case.block, shared_mem_bytes=case.shared)
        session.launch(module.function(case.kernel), config, args)
    return args[-1]


@pytest.mark.parametrize("case", BARRIER_SYNCHRONISED + HAND_MADE_SYNCHRONISATION, ids=lambda case: case.name)
def test_feature(case: Case) -> None:
    np.testing.assert_allclose(run(case, check=False), case.expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", BARRIER_SYNCHRONISED, ids=lambda case: case.name)
def test_check_mode_finds_no_fault(case: Case) -> None:
    np.testing.assert_allclose(run(case, check=True), case.expected, rtol=1e-5, atol=1e-6)


def test_printf_is_written_when_the_launch_returns(capfd: pytest.CaptureFixture[str]) -> None:
    with tfi.session("cpu") as session:
        module = session.compile_nvrtc('__global__ void k() { printf("hello %d %s\\n", (int)threadIdx.x, "x"); }')
        session.launch(module.function("k"), tfi.LaunchConfig(1, 2), [])
        assert capfd.readouterr().out == "hello 0 x\nhello 1 x\n"


def test_defines_and_headers_reach_the_source(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("__device__ int scale(int x) { return x * N; }")
    options = tfi.NvrtcOptions(defines={"N": "4"}, include_paths=(str(tmp_path),))
    seen = np.full(1, 3, np.int32)
    with tfi.session("cpu") as session:
        module = session.compile_nvrtc('#include "scale.h"\n__global__ void k(int* o) { *o = scale(*o); }', options)
        session.launch(module.function("k"), tfi.LaunchConfig(1, 1), [seen])
    assert seen[0] == 12
