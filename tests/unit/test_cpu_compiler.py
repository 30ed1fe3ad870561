"""The CPU device's compiler: options, errors, the disk cache and its checks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenferro_interop import CompileError, UnsupportedError, _core
from tenferro_interop._devices.cpu_compiler import HostImage, compile_image, compiler_report
from tenferro_interop._devices.cpu_toolchain import find_toolchain, translate_options

SOURCE = "__device__ int n; __global__ void k(int* o, float x) { *o = ++n; }"


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., HostImage]]:
    """Return a function that compiles into an empty cache of the test's own."""
    images: list[HostImage] = []

    def compile_one(source: str = SOURCE, **options: object) -> HostImage:
        runtime_table = _core.cpu_runtime_table()
        images.append(compile_image(source, runtime_table=runtime_table, cache_dir=tmp_path / "cache", **options))
        return images[-1]

    yield compile_one
    for image in images:
        image.close()


def test_kernel_carries_its_parameters(build: Callable[..., HostImage]) -> None:
    kernel = build().kernels["k"]
    assert [word & 0xFFFFFFFF for word in kernel.words[::2]] == [8, 4]
    assert kernel.max_threads == 1024


def test_close_twice_is_harmless(build: Callable[..., HostImage]) -> None:
    image = build()
    image.close()
    image.close()


def test_second_compilation_takes_the_kept_image(build: Callable[..., HostImage]) -> None:
    made = build().path.stat().st_mtime_ns
    assert build().path.stat().st_mtime_ns == made


def test_two_images_of_one_source_have_their_own_variables(build: Callable[..., HostImage]) -> None:
    assert build().kernels["k"].address != build().kernels["k"].address


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: data[:-1] + b"x", lambda data: b""])
def test_damaged_image_is_built_again(build: Callable[..., HostImage], damage: Callable[[bytes], bytes]) -> None:
    path = build().path
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert "k" in build().kernels
    assert len(path.read_bytes()) == len(whole)


@pytest.mark.parametrize("facts", [b"", b"[]", b"{}", b'{"sha256": 1, "headers": []}'])
def test_damaged_facts_are_built_again(build: Callable[..., HostImage], facts: bytes) -> None:
    path = build().path.with_suffix(".json")
    path.write_bytes(facts)
    assert "k" in build().kernels
    assert path.read_bytes() != facts


def test_changed_header_is_compiled_anew(build: Callable[..., HostImage], tmp_path: Path) -> None:
    names = []
    for name in ("first", "second"):
        (tmp_path / "kernel.h").write_text(f"__global__ void {name}() {{}}")
        names += build('#include "kernel.h"', include_paths=[str(tmp_path)]).kernels
    assert names == ["first", "second"]


def test_nothing_but_images_is_left_in_the_cache(build: Callable[..., HostImage], tmp_path: Path) -> None:
    build()
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".so", ".json", ".txt"}


def test_compile_error_names_the_users_line(build: Callable[..., HostImage]) -> None:
    with pytest.raises(CompileError) as caught:
        build("__global__ void k() {\n  int x = nowhere;\n}", filename="mine.cu")
    assert "mine.cu:2" in str(caught.value)
    assert "nowhere" in caught.value.log


def test_preprocessor_error_is_a_compile_error(build: Callable[..., HostImage]) -> None:
    with pytest.raises(CompileError, match=r"kernel\.cu:1"):
        build('#include "nowhere.h"')


def test_unknown_name_expression_is_a_compile_error(build: Callable[..., HostImage]) -> None:
    with pytest.raises(CompileError, match="nowhere"):
        build(name_expressions=["nowhere<int>"])


def test_options_become_flags() -> None:
    options = ["-DA", "--define-macro=B=2", "-D", "C", "-I/x", "--use_fast_math", "--fmad=false", "-G", "-arch=sm_90"]
    assert translate_options(options) == (["-DA", "-DB=2", "-DC", "-I/x"], ["-ffp-contract=off"])


def test_unknown_option_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="--frobnicate"):
        translate_options(["--frobnicate"])


def test_missing_compiler_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("TENFERRO_CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"tenferro-interop\[cpu\].*TENFERRO_CXX"):
        find_toolchain()


def test_named_compiler_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENFERRO_CXX", "no-such-compiler -x c++")
    with pytest.raises(UnsupportedError, match="no-such-compiler"):
        find_toolchain()


def test_report_names_the_compiler() -> None:
    assert find_toolchain().command[0] in compiler_report()
