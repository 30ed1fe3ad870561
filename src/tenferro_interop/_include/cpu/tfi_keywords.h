// CUDA's keywords, spelled for the host compiler.
#pragma once
#define TFI_INLINE static inline __attribute__((always_inline, unused))
#define TFI_EXPORT extern "C" __attribute__((visibility("default")))
// What the check mode's instrumentation must leave alone: our own code.
#ifdef __clang__
#define TFI_UNCHECKED __attribute__((disable_sanitizer_instrumentation))
#else
#define TFI_UNCHECKED __attribute__((no_sanitize("thread")))
#endif

// Inlined into its trampoline, so that the loop over threads can become vector code.  Check mode keeps the call: the
// trampoline is not instrumented, the kernel must be.
#ifdef TFI_CHECK
#define __global__ __attribute__((noinline)) inline
#else
#define __global__ __attribute__((always_inline)) inline
#endif
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __shared__ thread_local  // a block never leaves its OS thread
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
