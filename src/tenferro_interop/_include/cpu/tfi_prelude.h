// Makes CUDA C++ (NVRTC's dialect) compile with a host C++17 compiler; included before the user's source.
//
// No C++ library header anywhere below: zig would have to build libc++ first (41 s), and g++ takes longer for <cmath>
// than for a kernel.  C functions are declared by hand for the same reason.
#pragma once
#include "tfi_abi.h"
#include "tfi_traits.h"
#include "tfi_keywords.h"
#include "tfi_vector_types.h"
#include "tfi_threads.h"
#include "tfi_sync.h"
#include "tfi_warp.h"
#include "tfi_atomics.h"
#include "tfi_intrinsics.h"
#include "tfi_math.h"
#include "../tfi_signature.h"
#include "tfi_trampoline.h"
#ifdef TFI_CHECK
#include "tfi_check.h"
#endif
