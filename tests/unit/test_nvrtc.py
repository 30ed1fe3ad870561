"""NVRTC: options, name expressions, signatures, and what the disk cache keys on.  No GPU is needed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from tenferro_interop import BackendError, CompileError, NvrtcOptions, ValidationError
from tenferro_interop import _nvrtc as module
from tenferro_interop._nvrtc import CompiledSource, compile_cached, compile_cubin

AXPY = """
typedef const float* __restrict__ in;
extern "C" __global__ void axpy(float a, in x, float* y, int n) {}
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TENFERRO_CACHE", raising=False)
    monkeypatch.setenv("TENFERRO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiled(source: str, **options: object) -> CompiledSource:
    return compile_cubin(source, NvrtcOptions(**options), arch="sm_90")


def signature(source: str, name: str, **options: object) -> str:
    found = compiled(source, **options).find(name)
    assert found is not None
    return str(found[1])


def test_extern_c_kernel():
    result = compiled(AXPY)
    assert (result.kind, result.image[:4], result.log) == ("cubin", b"\x7fELF", "")
    assert result.lowered == {"axpy": "axpy"}
    assert str(result.signatures["axpy"]) == "(float, const float*, float*, int)"
    assert result.signatures["axpy"].source == "compiler"


def test_half_and_bfloat16_have_their_types():
    source = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    source += "__global__ void k(__half a, const half2* b, __nv_bfloat16* c, nv_bfloat162 d) {}"
    assert signature(source, "k") == "(__half, const __half2*, __nv_bfloat16*, __nv_bfloat162)"


def test_half_is_known_without_its_header():
    assert signature("struct __half; __global__ void k(const __half* x) {}", "k") == "(const __half*)"


def test_static_and_anonymous_kernels_are_kept():
    source = "static __global__ void s(int*) {} namespace { __global__ void a(float*) {} }"
    assert signature(source, "s") == "(int*)"
    assert signature(source, "a") == "(float*)"


def test_namespace_is_part_of_the_name():
    source = "namespace ns { __global__ void k(int*) {} }"
    assert signature(source, "ns::k") == "(int*)"
    assert compiled(source).find("k") is None


def test_symbol_is_found_too():
    assert compiled("__global__ void k(float*) {}").find("_Z1kPf") == compiled("__global__ void k(float*) {}").find("k")


def test_explicit_instantiation_needs_no_name_expression():
    source = "template <class T> __global__ void k(T*) {}\ntemplate __global__ void k<float>(float*);"
    assert signature(source, "k<float>") == "(float*)"


def test_template_of_class_template_argument():
    source = "template <class T> struct V { T* p; }; template <class T> __global__ void k(V<T> v, T x) {}"
    assert signature(source, "k<double>", name_expressions=("k<double>",)) == "(struct of 8 bytes, double)"


def test_overloads_do_not_break_the_compile():
    source = "__global__ void k(int*) {} __global__ void k(float*) {} __global__ void other(int n) {}"
    result = compiled(source, name_expressions=("(void(*)(int*))k",))
    assert result.find("k") is None
    assert str(result.signatures["(void(*)(int*))k"]) == "(int*)"
    assert str(result.signatures["other"]) == "(int)"


def test_wrong_candidate_is_dropped():
    source = "#if 0\n__global__ void never() {}\n#endif\n__global__ void k(int n) {}"
    assert set(compiled(source).lowered) == {"k"}


def test_name_expression_of_a_variable_has_a_symbol_and_no_signature():
    result = compiled("__constant__ float c[4]; __global__ void k() {}", name_expressions=("c", "k"))
    assert result.find("c") == ("c", None)
    assert str(result.signatures["k"]) == "()"


@pytest.mark.parametrize(
    "source",
    [
        "typedef unsigned short __half; __global__ void k(__half* x) {}",
        "__global__ void k(unsigned short* x) {}\n#define template",
    ],
)
def test_source_that_the_probe_header_breaks_is_compiled_alone(source: str):
    result = compiled(source)
    assert result.image[:4] == b"\x7fELF"
    assert (result.lowered, result.signatures) == ({"k": "_Z1kPt"}, {})


@pytest.mark.parametrize("ending", ["//\\", "/* */", "\t"])
def test_end_of_source_does_not_swallow_the_header(ending: str):
    assert signature(f"__global__ void k(int n) {{}} {ending}", "k") == "(int)"


@pytest.mark.parametrize("source", ["__global__ void k(int* x) { foo(); }", "__global__ void k(int* x) {", "#if 1"])
def test_error_is_the_users_own(source: str):
    with pytest.raises(CompileError) as error:
        compiled(source)
    assert "kernel.cu(1)" in error.value.log
    assert "tfi_signature" not in error.value.log
    assert "name_expr" not in error.value.log


def test_bad_name_expression_is_an_error_of_the_user():
    with pytest.raises(CompileError, match="nope"):
        compiled("__global__ void k() {}", name_expressions=("nope<int>",))


def test_source_without_bytes_is_refused():
    with pytest.raises(ValidationError) as error:
        compiled("// \ud800")
    assert error.value.argument == "source"


def test_filename_is_in_the_log():
    with pytest.raises(CompileError) as error:
        compile_cubin("oops", NvrtcOptions(), arch="sm_90", filename="axpy.cu")
    assert "axpy.cu(1)" in error.value.log


def test_virtual_architecture_gives_ptx():
    result = compiled(AXPY, arch="compute_90")
    assert result.kind == "ptx"
    assert b".entry axpy" in result.image
    assert not result.image.endswith(b"\0")


def test_defines_reach_the_compiler():
    source = "#if N != 8 || !defined(FLAG) || Q(2) != 4\n#error no\n#endif\n__global__ void k() {}"
    assert compiled(source, defines={"N": 8, "FLAG": None, "Q(x)": "(x+x)"}).lowered == {"k": "_Z1kv"}


def test_options_compare_and_hash_by_value():
    one, two = NvrtcOptions(defines={"B": 1, "A": "1"}), NvrtcOptions(defines={"A": 1, "B": True})
    assert one == two
    assert len({one, two, NvrtcOptions()}) == 2
    assert dataclasses.replace(one, check=True).defines == (("A", "1"), ("B", "1"))


def test_options_take_paths(tmp_path: Path):
    assert NvrtcOptions(include_paths=(tmp_path,)).include_paths == (str(tmp_path),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arch", "hopper"),
        ("arch", "sm_90 --evil"),
        ("arch", "SM_90"),
        ("std", "c++"),
        ("std", "17"),
        ("extra", "--use_fast_math"),
        ("extra", b"--use_fast_math"),
        ("extra", ("",)),
        ("extra", (" ",)),
        ("extra", (1,)),
        ("extra", ("--std=c++20",)),
        ("extra", ("-std", "c++20")),
        ("extra", ("--std=c++17 --gpu-architecture=sm_90",)),
        ("extra", ("-arch=sm_80",)),
        ("extra", ("-I/usr/include",)),
        ("extra", ("-DX=\0",)),
        ("include_paths", "/usr/include"),
        ("include_paths", Path("/usr/include")),
        ("include_paths", ("/a\0b",)),
        ("name_expressions", "k<float>"),
        ("name_expressions", ("",)),
        ("name_expressions", ("k\0",)),
        ("defines", "N=3"),
        ("defines", {"1N": 3}),
        ("defines", {"N=3": None}),
        ("defines", {"N": "1\0"}),
        ("defines", {"N": 1.5}),
    ],
)
def test_options_refuse(field: str, value: object):
    with pytest.raises(ValidationError) as error:
        NvrtcOptions(**{field: value})
    assert error.value.argument == field


def test_bare_string_error_shows_the_tuple():
    with pytest.raises(ValidationError, match=r"Pass extra=\('--use_fast_math',\)"):
        NvrtcOptions(extra="--use_fast_math")


def test_cached_result_is_the_compiled_one():
    first = compile_cached(AXPY, NvrtcOptions(), arch="sm_90")
    assert first == compile_cubin(AXPY, NvrtcOptions(), arch="sm_90")
    assert compile_cached(AXPY, NvrtcOptions(), arch="sm_90") == first


@pytest.mark.parametrize(
    ("source", "options", "arch", "entries"),
    [
        (AXPY, NvrtcOptions(), "sm_90", 1),
        (AXPY, NvrtcOptions(arch="sm_90"), "sm_80", 1),
        (AXPY, NvrtcOptions(check=True), "sm_90", 1),
        (AXPY + " ", NvrtcOptions(), "sm_90", 2),
        (AXPY, NvrtcOptions(), "sm_80", 2),
        (AXPY, NvrtcOptions(std="c++20"), "sm_90", 2),
        (AXPY, NvrtcOptions(defines={"N": 1}), "sm_90", 2),
        (AXPY, NvrtcOptions(extra=("--use_fast_math",)), "sm_90", 2),
        (AXPY, NvrtcOptions(name_expressions=("axpy",)), "sm_90", 2),
    ],
)
def test_entries_after_a_second_request(
    cache_folder: Path, source: str, options: NvrtcOptions, arch: str, entries: int
):
    compile_cached(AXPY, NvrtcOptions(), arch="sm_90")
    compile_cached(source, options, arch=arch)
    assert len(list(cache_folder.iterdir())) == entries


def test_changed_header_is_compiled_again(tmp_path: Path):
    header = tmp_path / "t.h"
    source, options = '#include "t.h"\n__global__ void k(T* x) {}', NvrtcOptions(include_paths=(str(tmp_path),))
    header.write_text("typedef float T;")
    assert str(compile_cached(source, options, arch="sm_90").signatures["k"]) == "(float*)"
    header.write_text("typedef double T;")
    assert str(compile_cached(source, options, arch="sm_90").signatures["k"]) == "(double*)"


def test_damaged_entry_is_compiled_again(cache_folder: Path):
    first = compile_cached(AXPY, NvrtcOptions(), arch="sm_90")
    (entry,) = cache_folder.iterdir()
    entry.write_bytes(entry.read_bytes()[:-8])
    assert compile_cached(AXPY, NvrtcOptions(), arch="sm_90") == first


def test_header_named_by_a_macro_is_not_cached(tmp_path: Path, cache_folder: Path):
    (tmp_path / "t.h").write_text("typedef float T;")
    options = NvrtcOptions(include_paths=(str(tmp_path),), defines={"HEADER": "<t.h>"})
    compile_cached("#include HEADER\n__global__ void k(T* x) {}", options, arch="sm_90")
    assert not cache_folder.exists()


def test_pre_included_header_is_not_cached(tmp_path: Path, cache_folder: Path):
    (tmp_path / "t.h").write_text("typedef float T;")
    options = NvrtcOptions(include_paths=(str(tmp_path),), extra=("--pre-include=t.h",))
    compile_cached("__global__ void k(T* x) {}", options, arch="sm_90")
    assert not cache_folder.exists()


def test_missing_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    module._nvrtc.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cuda.bindings", None)
        with pytest.raises(BackendError, match=r"pip install 'tenferro-interop\[cu13\]'"):
            compiled(AXPY)
    assert compiled(AXPY).lowered == {"axpy": "axpy"}
