"""Public failure reports, section I: compiling and loading, and the parameter space of section G.  No GPU is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenferro_interop import CompileError, NvrtcOptions, TenferroError, ValidationError
from tenferro_interop._nvrtc import CompiledSource, compile_cached, compile_cubin, nvrtc_version


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENFERRO_CACHE_DIR", str(tmp_path / "cache"))


def compiled(source: str, arch: str = "sm_90", **options: object) -> CompiledSource:
    return compile_cubin(source, NvrtcOptions(**options), arch=arch)


KERNEL = "__global__ void k(float* x) {}"


@pytest.mark.parametrize("arch", ["compute_999", "compute_20", "sm_999"])
def test_case_097_unknown_architecture_shows_log_options_and_version(arch: str):
    with pytest.raises(CompileError) as error:
        compiled(KERNEL, arch=arch)
    text = str(error.value)
    assert "gpu-architecture" in error.value.log
    assert error.value.log.strip() in text
    assert f"--gpu-architecture={arch}" in text
    assert f"NVRTC {nvrtc_version()}" in text
    assert (error.value.options[0], error.value.version) == (f"--gpu-architecture={arch}", nvrtc_version())


def test_case_097_architecture_by_name_is_refused():
    with pytest.raises(ValidationError) as error:
        NvrtcOptions(arch="hopper")
    assert (error.value.argument, error.value.actual) == ("arch", "hopper")


def test_case_098_default_architecture_is_the_devices():
    source = "__global__ void k() {}\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900\n#error old\n#endif"
    assert compiled(source, arch="sm_90").image
    with pytest.raises(CompileError, match="old"):
        compiled(source, arch="sm_80")


def test_case_099_interior_nul_is_refused():
    with pytest.raises(ValidationError) as error:
        compiled(KERNEL + "\0 garbage")
    assert error.value.argument == "source"


@pytest.mark.parametrize("compile_it", [compile_cubin, compile_cached])
def test_case_099_trailing_nul_is_refused(compile_it):
    with pytest.raises(ValidationError) as error:
        compile_it(KERNEL + "\0", NvrtcOptions(), arch="sm_90")
    assert error.value.argument == "source"


@pytest.mark.parametrize("field", ["name_expressions", "extra", "include_paths"])
def test_case_099_nul_in_an_option_is_refused(field: str):
    with pytest.raises(ValidationError) as error:
        NvrtcOptions(**{field: ("k\0",)})
    assert error.value.argument == field


def test_case_099_nul_in_the_filename_is_refused():
    with pytest.raises(ValidationError) as error:
        compile_cubin(KERNEL, NvrtcOptions(), arch="sm_90", filename="a\0.cu")
    assert error.value.argument == "filename"


@pytest.mark.parametrize("name", ["k", "_Z1kPf", " k "])
def test_case_101_cxx_kernel_is_found_by_its_plain_name(name: str):
    found = compiled(KERNEL).find(name)
    assert found is not None
    assert (found[0], str(found[1])) == ("_Z1kPf", "(float*)")


@pytest.mark.parametrize("name", ["k<float>", "k< float >", "_Z1kIfEvPT_"])
def test_case_101_template_is_found_by_its_expression(name: str):
    found = compiled("template <class T> __global__ void k(T* x) {}", name_expressions=("k<float>",)).find(name)
    assert found is not None
    assert (found[0], str(found[1])) == ("_Z1kIfEvPT_", "(float*)")


def test_case_102_non_ascii_source_works():
    assert compiled(f'// é 温\n{KERNEL}\n__device__ const char* text = "é";').find("k")


def test_case_102_byte_order_mark_is_stripped():
    assert compiled("\ufeff" + KERNEL).find("k")


def test_case_102_non_ascii_include_path_works(tmp_path: Path):
    folder = tmp_path / "é 温 sp"
    folder.mkdir()
    (folder / "t.h").write_text("typedef float T;")
    source = '#include "t.h"\n__global__ void k(T* x) {}'
    result = compile_cached(source, NvrtcOptions(include_paths=(str(folder),)), arch="sm_90")
    assert str(result.signatures["k"]) == "(float*)"


def test_case_103_log_that_is_not_utf8_keeps_the_error():
    latin1 = b"__global__ void k() { \xe9 }".decode("utf-8", "surrogateescape")
    with pytest.raises(CompileError, match="unrecognized token") as error:
        compiled(latin1)
    assert "\ufffd" in error.value.log


HEADERS = ["cuda_fp16.h", "stdint.h", "cooperative_groups.h"]


@pytest.mark.parametrize("header", HEADERS)
def test_case_105_missing_header_is_named_with_the_fix(header: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenferro_interop._nvrtc._toolkit_directories", lambda: ())
    with pytest.raises(CompileError) as error:
        compiled(f"#include <{header}>\n{KERNEL}")
    assert f'"{header}"' in error.value.log
    assert "NvrtcOptions(include_paths=(" in str(error.value)


@pytest.mark.parametrize("header", ["cuda_fp16.h", "cooperative_groups.h", "my.h"])
def test_case_105_include_path_is_searched(header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenferro_interop._nvrtc._toolkit_directories", lambda: ())
    (tmp_path / header).write_text("typedef float T;")
    result = compiled(f"#include <{header}>\n__global__ void k(T* x) {{}}", include_paths=(str(tmp_path),))
    assert str(result.signatures["k"]) == "(float*)"


def test_case_106_bare_string_of_options_is_refused():
    with pytest.raises(ValidationError) as error:
        NvrtcOptions(extra="--use_fast_math")
    assert error.value.argument == "extra"


def test_case_106_empty_option_is_refused():
    with pytest.raises(ValidationError) as error:
        NvrtcOptions(extra=("",))
    assert error.value.argument == "extra"


def test_case_106_two_options_in_one_are_refused():
    with pytest.raises(TenferroError) as error:
        NvrtcOptions(extra=("--std=c++17 --gpu-architecture=sm_90",))
    assert "--std=c++17 --gpu-architecture=sm_90" in str(error.value)


@pytest.mark.parametrize("option", ["--nope", "--use_fast_math --fmad=false"])
def test_case_106_option_unknown_to_nvrtc_is_in_the_error(option: str):
    with pytest.raises(CompileError) as error:
        compiled(KERNEL, extra=(option,))
    assert error.value.options[-1] == option
    assert error.value.log.strip() in str(error.value)
    assert repr(option) in str(error.value)


@pytest.mark.parametrize("option", ["--std=c++20", "-std=c++20", "-std", "--std"])
def test_case_107_second_std_is_refused(option: str):
    with pytest.raises(ValidationError) as error:
        NvrtcOptions(std="c++17", extra=(option,))
    assert error.value.argument == "extra"


STRUCT = "struct S {{ char bytes[{size}]; }}; __global__ void k(S s{more}) {{}}"


@pytest.mark.parametrize(("size", "more"), [(5000, ""), (32752, ", int* p"), (32764, "")])
def test_case_085_large_parameters_compile(size: int, more: str):
    assert compiled(STRUCT.format(size=size, more=more)).signatures["k"].parameters[0].size == size


def test_case_085_parameter_overflow_shows_the_compilers_limit():
    with pytest.raises(CompileError, match=r"max 32764 bytes"):
        compiled(STRUCT.format(size=32765, more=", int* p"))
