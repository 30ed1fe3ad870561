"""The CPU device's front end: what it refuses, which kernels it finds, how it rewrites shared memory."""

import pytest

from tenferro_interop import UnsupportedError
from tenferro_interop._devices.cpu_source import (
    Source,
    find_kernels,
    refuse_missing_header,
    refuse_unsupported,
    reorder_specifiers,
    rewrite_dynamic_shared,
    translate,
)

OURS = "/package/_include/cpu"


def source(text: str) -> Source:
    return Source(f'# 1 "kernel.cu"\n{text}', OURS)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(r));', "inline PTX (asm)"),
        ("child<<<1, 32>>>(x);", "a kernel launch from device code"),
        ("wmma::fragment<wmma::matrix_a, 16, 16, 16, half> a;", "a tensor-core operation (wmma)"),
        ("float v = tex2D<float>(t, x, y);", "a texture or surface"),
        ("auto g = cg::this_grid();", "grid-wide synchronisation"),
        ("auto c = cg::this_cluster();", "a thread block cluster"),
        ("__managed__ int m;", "__managed__ memory"),
        ("cuda::barrier<cuda::thread_scope_block> b;", "an asynchronous copy or barrier object"),
        ("cudaMalloc(&p, 16);", "a CUDA runtime call"),
    ],
)
def test_refuses_what_only_a_gpu_has(code: str, what: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        refuse_unsupported(source(f"__global__ void k() {{\n  {code}\n}}\n"))
    assert str(caught.value).startswith(f"compile_nvrtc: kernel.cu:2: {what} is not supported on the CPU device. ")


def test_refusal_names_the_header_and_its_line() -> None:
    text = Source('# 1 "kernel.cu"\n# 1 "ptx.h" 1\n\n\nint f() { asm("x"); }\n# 2 "kernel.cu" 2\n', OURS)
    with pytest.raises(UnsupportedError, match=r"ptx\.h:3: inline PTX"):
        refuse_unsupported(text)


@pytest.mark.parametrize(
    "text",
    [
        '# 1 "kernel.cu"\nconst char* s = "asm(1) <<<";\n',
        '# 1 "/usr/include/stdlib.h" 1 3 4\nextern int f() __asm__("g");\n',
        f'# 1 "{OURS}/cuda_fp16.h" 1\nasm("x");\n',
    ],
    ids=["string", "system header", "own header"],
)
def test_accepts_the_same_words_outside_user_code(text: str) -> None:
    refuse_unsupported(Source(text, OURS))


@pytest.mark.parametrize(
    "log",
    [
        "kernel.cu:3:10: fatal error: mma.h: No such file or directory",
        "kernel.cu:3:10: fatal error: 'mma.h' file not found",
    ],
    ids=["g++", "clang"],
)
def test_refuses_a_missing_header_of_gpu_instructions(log: str) -> None:
    with pytest.raises(UnsupportedError, match=r"kernel\.cu:3: the header <mma\.h>"):
        refuse_missing_header(log)


def test_leaves_other_missing_headers_to_the_compiler() -> None:
    refuse_missing_header("kernel.cu:3:10: fatal error: mine.h: No such file or directory")


@pytest.mark.parametrize(
    ("declaration", "name", "is_template", "max_threads"),
    [
        ('extern "C" __global__ void k(int* x) {}', "k", False, 1024),
        ("static __global__ void k() {}", "k", False, 1024),
        ("void __global__ k() {}", "k", False, 1024),
        ("__global__ void __launch_bounds__(128) k() {}", "k", False, 128),
        ("__global__ __launch_bounds__(256, 2) void k(float (*f)(int)) {}", "k", False, 256),
        ("__launch_bounds__(64) __global__ void k() {}", "k", False, 64),
        ("__global__ void __launch_bounds__(N) k() {}", "k", False, 1024),
        ("template <class T, int N> __global__ void k(T* x) {}", "k", True, 1024),
        ("namespace a::b { namespace { __global__ void k() {} } }", "a::b::k", False, 1024),
        ('extern "C" { __global__ void k() {} }', "k", False, 1024),
    ],
)
def test_finds_a_kernel(declaration: str, name: str, is_template: bool, max_threads: int) -> None:
    (kernel,) = find_kernels(source(declaration).code)
    assert (kernel.name, kernel.is_template, kernel.max_threads) == (name, is_template, max_threads)
    assert kernel.is_defined


def test_forward_declaration_is_not_a_definition() -> None:
    first, second = find_kernels(source("__global__ void k(int*);\n__global__ void k(int* x) {}").code)
    assert (first.is_defined, second.is_defined) == (False, True)


def test_table_leaves_out_names_that_stand_for_several_kernels() -> None:
    code = "__global__ void k(int*) {} __global__ void k(float*) {} template <class T> __global__ void t(T) {}"
    text = translate(source(code + " __global__ void lone() {}"), ["(void (*)(int*))k"])
    table = text[text.index("TFI_MODULE(") :].splitlines()
    assert table[1:-1] == [
        'TFI_KERNEL("lone", 1024, lone)',
        'TFI_KERNEL("(void (*)(int*))k", 1024, (void (*)(int*))k)',
    ]


def test_name_expression_has_its_templates_launch_bounds() -> None:
    code = "namespace n { template <class T> __global__ void __launch_bounds__(96) k(T* x) {} }"
    assert 'TFI_KERNEL("n::k<float>", 96, n::k<float>)' in translate(source(code), ["n::k<float>"])


def test_source_without_waiting_runs_as_plain_loops() -> None:
    assert "TFI_NO_WAITING" in translate(source("__global__ void k() {}"), [])
    assert "TFI_NO_WAITING" not in translate(source("__global__ void k() { __syncthreads(); }"), [])


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("extern __shared__ float s[];", "float (&s)[] = *(float (*)[])tfi_cpu::dynamic_shared();"),
        (
            "extern __shared__ __align__(16) unsigned char s[];",
            "unsigned char (&s)[] = *(unsigned char (*)[])tfi_cpu::dynamic_shared();",
        ),
        ("extern __shared__ alignas(T) int s[][4];", "int (&s)[][4] = *(int (*)[][4])tfi_cpu::dynamic_shared();"),
        ("__shared__ extern volatile v<T, 2> s[];", None),
        (
            "extern __shared__ int a[], b[];",
            "int (&a)[] = *(int (*)[])tfi_cpu::dynamic_shared(); int (&b)[] = *(int (*)[])tfi_cpu::dynamic_shared();",
        ),
    ],
)
def test_dynamic_shared_memory_in_a_function(declaration: str, expected: str | None) -> None:
    text, is_outside = rewrite_dynamic_shared(source(f"void f() {{ {declaration} }}"))
    expected = expected or "volatile v<T, 2> (&s)[] = *(volatile v<T, 2> (*)[])tfi_cpu::dynamic_shared();"
    assert f"{{ {expected} }}" in text
    assert not is_outside


def test_dynamic_shared_memory_outside_functions() -> None:
    text, is_outside = rewrite_dynamic_shared(source("namespace n {\nextern __shared__ float s[];\n}"))
    assert 'extern __thread float s[] __asm__("tfi_dynamic_shared");' in text
    assert is_outside


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("static inline __device__ __forceinline__ int f();", "static  __device__ __forceinline__ int f();"),
        ("__forceinline__ __device__ inline int f();", "__forceinline__ __device__ int f();"),
        ("inline __global__ void k();", " __global__ void k();"),
        ("inline __device__ int f();", "inline __device__ int f();"),
        ("static __shared__ alignas(alignof(T)) T s[4];", "alignas(alignof(T)) static __shared__ T s[4];"),
    ],
)
def test_specifiers_that_only_nvcc_takes_are_reordered(declaration: str, expected: str) -> None:
    assert reorder_specifiers(declaration) == expected


def test_rewriting_keeps_line_numbers() -> None:
    before = source("void f() {\n  extern __shared__\n    float s[];\n  last();\n}")
    text, _ = rewrite_dynamic_shared(before)
    assert text.count("\n", 0, text.index("last")) == before.text.count("\n", 0, before.text.index("last"))
