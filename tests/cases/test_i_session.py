"""Public failure reports, section I: compiling and loading through a session (99, 101, 102, 106, 111)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tenferro_interop as tfi
from tenferro_interop import LaunchConfig, NvrtcOptions
from tenferro_interop._devices.cuda_image import check_cubin

ONE = LaunchConfig(1, 1)
SEVEN = 'extern "C" __global__ void seven(int* out) { *out = 7; }'


def run(s: tfi.Session, device: str, source: str, kernel: str, options: NvrtcOptions | None = None) -> int:
    out = torch.zeros(1, dtype=torch.int32, device=device)
    s.launch(s.compile_nvrtc(source, options).function(kernel), ONE, [out])
    return out.item()


@pytest.mark.parametrize("source", [SEVEN + "\0 garbage", "\0" + SEVEN, SEVEN + "\0"])
def test_case_099_source_with_nul_is_refused(session: tfi.Session, source: str):
    with pytest.raises(tfi.ValidationError) as error:
        session.compile_nvrtc(source)
    assert (error.value.op, error.value.argument) == ("compile_nvrtc", "source")


@pytest.mark.parametrize("source", [SEVEN.encode(), None, 5])
def test_case_099_source_that_is_no_text_is_refused(session: tfi.Session, source: Any):
    with pytest.raises(tfi.ValidationError) as error:
        session.compile_nvrtc(source)
    assert error.value.argument == "source"


@pytest.mark.parametrize("name", ["seven\0", "\0", "se\0ven", b"seven", None])
def test_case_099_name_that_is_no_text_or_has_nul_is_refused(session: tfi.Session, name: Any):
    with pytest.raises(tfi.ValidationError) as error:
        session.compile_nvrtc(SEVEN).function(name)
    assert (error.value.op, error.value.argument) == ("module.function", "symbol")


@pytest.mark.parametrize("ptx", ["// a\0b", b"// a\0b\0", "\0\0"])
def test_case_099_ptx_with_interior_nul_is_refused(session: tfi.Session, ptx: str | bytes):
    with pytest.raises(tfi.ValidationError, match="an interior NUL") as error:
        session.load_ptx(ptx)
    assert (error.value.op, error.value.argument) == ("load_ptx", "ptx")


@pytest.mark.parametrize("name", ["Seven", "seven2", "sevn", "nothing", "", " "])
def test_case_101_missing_symbol_shows_the_candidates(session: tfi.Session, name: str):
    with pytest.raises(tfi.BackendError) as error:
        session.compile_nvrtc(SEVEN).function(name)
    assert (error.value.op, error.value.candidates) == ("module.function", ["seven"])
    assert "['seven']" in str(error.value)


def test_case_101_missing_template_shows_how_to_ask_for_it(session: tfi.Session):
    with pytest.raises(tfi.BackendError, match="name_expressions"):
        session.compile_nvrtc("template <class T> __global__ void k(T* x) {}\n" + SEVEN).function("k<float>")


def test_case_101_kernel_without_extern_c_is_found_by_its_plain_name(session: tfi.Session, device: str):
    assert run(session, device, "__global__ void seven(int* out) { *out = 7; }", "seven") == 7


def test_case_101_template_is_found_by_its_name_expression(session: tfi.Session, device: str):
    source = "template <class T> __global__ void k(T* x) { *x = sizeof(T) + 3; }"
    assert run(session, device, source, "k<int>", NvrtcOptions(name_expressions=("k<int>",))) == 7


def test_case_101_failed_look_up_leaves_the_module_usable(session: tfi.Session, device: str):
    module, out = session.compile_nvrtc(SEVEN), torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(tfi.BackendError):
        module.function("eight")
    session.launch(module.function("seven"), ONE, [out])
    assert out.item() == 7


def test_case_102_source_beyond_ascii(session: tfi.Session, device: str):
    source = '// é 温\n__device__ const char text[] = "é";\n'
    source += 'extern "C" __global__ void size(int* out) { *out = sizeof text; }'
    assert run(session, device, source, "size") == 3


def test_case_102_include_path_beyond_ascii(session: tfi.Session, device: str, tmp_path: Path):
    folder = tmp_path / "é 温 sp"
    folder.mkdir()
    (folder / "seven.h").write_text("#define SEVEN 7\n")
    source = '#include "seven.h"\nextern "C" __global__ void seven(int* out) { *out = SEVEN; }'
    assert run(session, device, source, "seven", NvrtcOptions(include_paths=(str(folder),))) == 7


@pytest.mark.parametrize("ptx", ["// é", "// é".encode(), "// é".encode("latin-1")])
def test_case_102_ptx_beyond_ascii_is_refused(session: tfi.Session, ptx: str | bytes):
    with pytest.raises(tfi.ValidationError, match="non-ASCII text at byte 3") as error:
        session.load_ptx(ptx)
    assert error.value.argument == "ptx"


@pytest.mark.parametrize("extra", ["--use_fast_math", ("--use_fast_math", 5)])
def test_case_106_options_that_are_no_list_of_texts_are_refused(extra: Any):
    with pytest.raises((TypeError, tfi.ValidationError), match="extra"):
        NvrtcOptions(extra=extra)


@pytest.mark.parametrize("extra", [("--no-such-option-at-all",), ("--std=c++17 --gpu-architecture=sm_90",)])
def test_case_106_option_that_the_compiler_refuses_shows_its_log(session: tfi.Session, extra: tuple[str, ...]):
    with pytest.raises(tfi.TenferroError) as error:
        session.compile_nvrtc(SEVEN, NvrtcOptions(extra=extra))
    assert extra[0].split()[0].lstrip("-").partition("=")[0] in str(error.value)


@pytest.mark.parametrize("image", [b"", b"\x7f", b"\x7fELF", b"\x7fELF\x02" + bytes(59), b"text", bytes(100)])
def test_case_111_short_or_foreign_image_is_refused_before_the_driver(image: bytes):
    with pytest.raises(tfi.ValidationError) as error:
        check_cubin(image)
    assert (error.value.op, error.value.argument) == ("load_cubin", "cubin")


@pytest.mark.gpu
@pytest.mark.parametrize("image", [b"", b"\x7f", b"\x7fELF", b"\x7fELF\x02" + bytes(59), b"text", bytes(100)])
def test_case_111_short_or_foreign_image_is_refused_by_a_session(image: bytes):
    with tfi.session("cuda") as s, pytest.raises(tfi.ValidationError) as error:
        s.load_cubin(image)
    assert (error.value.op, error.value.argument) == ("load_cubin", "cubin")
