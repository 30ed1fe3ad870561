"""Spellings that nvcc and NVRTC take and a host compiler alone would refuse or misread."""

import numpy as np
import pytest

import tenferro_interop as tfi

FORMS = {
    "inline kernel": "inline __global__ void k(int* o) { *o = 1; }",
    "inline twice": "static __device__ __forceinline__ inline int f() { return 1; } "
    "__global__ void k(int* o) { *o = f(); }",
    "kernel declared first": "__global__ void k(int*); __global__ void k(int* o) { *o = 1; }",
    "void before __global__": "void __global__ k(int* o) { *o = 1; }",
    'extern "C" block': 'extern "C" { __device__ int f() { return 1; } __global__ void k(int* o) { *o = f(); } }',
    "own integer typedefs": "typedef long long int64_t; typedef unsigned int uint32_t; "
    "__global__ void k(int* o) { int64_t a = 1; *o = a; }",
    "<stdint.h>": "#include <stdint.h>\n__global__ void k(int32_t* o) { *o = 1; }",
    "C headers": "#include <stdlib.h>\n#include <stdio.h>\n#include <string.h>\n#include <math.h>\n"
    "#include <assert.h>\n#include <float.h>\n#include <time.h>\n"
    "__global__ void k(int* o) { assert(M_PI > 3); *o = abs(-1); }",
    "C++ headers": "#include <type_traits>\n#include <cmath>\n#include <limits>\n#include <cstdint>\n"
    "__global__ void k(int* o) { *o = std::is_same<int, int>::value && std::sqrt(4.f) == 2 "
    "&& std::numeric_limits<int>::max() > 0; }",
    "device lambda": "template <class F> __device__ int call(F f) { return f(1); } "
    "__global__ void k(int* o) { *o = call([] __device__(int x) { return x; }); }",
    "macros named like our parameters": "#define A 3\n#define T int\n#define F 2\n#define I 4\n#define N 5\n"
    "#define min(a, b) ((a) < (b) ? (a) : (b))\n__global__ void k(T* o) { *o = min(1, 2); }",
    "grid constant": "struct P { int a[4]; }; "
    "__global__ void other(const __grid_constant__ P p, int* o) { *o = p.a[1]; } "
    "__global__ void k(int* o) { *o = 1; }",
    "all scalar parameters": "__global__ void other(bool b, char c, short s, unsigned char u, long l, float4 f) {} "
    "__global__ void k(int* o) { *o = 1; }",
    "shared memory aligned in every way": "__global__ void k(int* o) { __shared__ __align__(16) int a[4]; "
    "alignas(16) __shared__ int b[4]; __shared__ alignas(128) int c[4]; volatile __shared__ int d[4]; "
    "a[0] = b[0] = c[0] = d[0] = 1; __syncthreads(); *o = a[0] & b[0] & c[0] & d[0]; }",
    "shared structures": "struct S { int a; float b; }; __global__ void k(int* o) { __shared__ S s[4]; "
    "__shared__ struct { int x; } t; s[0].a = t.x = 1; __syncthreads(); *o = s[0].a & t.x; }",
    "shared array at file scope": "__shared__ int s[32]; "
    "__global__ void k(int* o) { s[0] = 1; __syncthreads(); *o = s[0]; }",
    "dynamic shared memory of two types": "__global__ void other(int* o) { extern __shared__ float s[]; *o = s[0]; } "
    "__global__ void k(int* o) { extern __shared__ int s[]; s[0] = 1; __syncthreads(); *o = s[0]; }",
    "launch bounds of a constant": "constexpr int W = 32; "
    "__global__ void __launch_bounds__(W * 4) k(int* o) { *o = 1; }",
    "table of functions": "typedef int (*F)(int); __device__ int f(int a) { return a; } __device__ F table[1] = {f}; "
    "__global__ void k(int* o) { *o = table[0](1); }",
    "own max of three": "__device__ float max(float a, float b, float c) { return max(a, max(b, c)); } "
    "__global__ void k(int* o) { *o = (int)max(1.f, 0.f, 0.5f); }",
    "raw strings and digit separators": 'extern "C" __global__ void k(int* o) { const char* s = R"(asm("x") <<<)"; '
    "*o = s[0] == 97 && 1'000 == 1000; }",
    "shuffle within the active mask": "__global__ void k(int* o) { unsigned m = __activemask(); "
    "*o = __shfl_sync(m, 1, __ffs(m) - 1); }",
}


@pytest.mark.parametrize("form", FORMS)
def test_form_compiles_and_runs(form: str) -> None:
    out = np.zeros(1, np.int32)
    with tfi.session("cpu") as session:
        function = session.compile_nvrtc(FORMS[form]).function("k")
        session.launch(function, tfi.LaunchConfig(1, 32, shared_mem_bytes=64), [out])
    assert out[0] == 1
