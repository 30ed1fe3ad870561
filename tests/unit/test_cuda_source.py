"""Kernel names and headers, read from text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenferro_interop._cuda_source import included_files, kernel_names, normalise


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('extern "C" __global__ void k(int* x) {}', ("k",)),
        ('extern "C" { __global__ void a(); __global__ void b() {} }', ("a", "b")),
        ("__global__ void k(int); __global__ void k(int) {}", ("k",)),
        ("static __global__ void __launch_bounds__(256, 2) k(int) {}", ("k",)),
        ("__global__ __launch_bounds__(N(1)) void k(int) noexcept {}", ("k",)),
        ("void __global__ k() {}", ("k",)),
        ("__global__ auto k(int) -> void {}", ("k",)),
        ("__global__\nvoid\nk (\nint\n)\n{\n}", ("k",)),
        ("namespace a::b { namespace { __global__ void k() {} } } __global__ void top() {}", ("a::b::k", "top")),
        ("inline namespace v1 { namespace x { __global__ void k() {} } }", ("v1::x::k",)),
        ("void f() { if (1) { } } __global__ void k() {}", ("k",)),
        ("__global__ void k(int a = int{3}) {} __global__ void l() {}", ("k", "l")),
        ("template <class T> __global__ void k(T* x) {}", ()),
        ("template <class T> __global__ void k(T*) {}\ntemplate __global__ void k<float>(float*);", ("k<float>",)),
        ("template <> __global__ void ns::k<Q<int>>(Q<int>*) {}", ("ns::k<Q<int>>",)),
        ("struct S { friend __global__ void k(); };", ()),
        ("#define K(n) __global__ void n(int) {} \\\n  __global__ void two() {}\nK(one)", ()),
        ("KERNEL(k)(int) {}", ()),
        ("__global__ void NAME(k)(int) {}", ()),
        ("// __global__ void a() {}\n/* __global__ void b() {} */ __global__ void c() {}", ("c",)),
        ('const char* s = "__global__ void a() {}"; __global__ void c() {}', ("c",)),
        ('const char* s = R"x(__global__ void a() {} " )x"; __global__ void c() {}', ("c",)),
        ("__device__ int n = 1'000; __global__ void c() { char q = '\"'; }", ("c",)),
        ("} __global__ void c() {}", ("c",)),
        ("__global__", ()),
        ("", ()),
    ],
)
def test_kernel_names(source: str, names: tuple[str, ...]):
    assert kernel_names(source) == names


@pytest.mark.parametrize(
    "spelling", ["k<float,int*>", " k < float , int * > ", "&k<float, int *>", "::k<float,\nint*>"]
)
def test_spelling_of_an_expression_does_not_matter(spelling: str):
    assert normalise(spelling) == "k<float,int*>"


def test_space_between_words_matters():
    assert normalise("k<unsigned  long>") == "k<unsigned long>"


def names_of(source: str, directory: Path, *search: Path, toolkit: tuple[str, ...] = ()) -> list[str]:
    headers = included_files(source, directory, [str(path) for path in search], toolkit=toolkit)
    return [str(Path(path).relative_to(directory)) for path, _ in headers.digests]


def test_headers_are_followed(tmp_path: Path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "a.h").write_text('#pragma once\n# include <b.h>\n#include "a.h"')
    (tmp_path / "inc" / "b.h").write_text("int b;")
    (tmp_path / "inc" / "c.h").write_text("int c;")
    assert names_of('#include "a.h"', tmp_path, tmp_path / "inc") == ["a.h", "inc/b.h"]


def test_header_beside_its_includer_is_found(tmp_path: Path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "a.h").write_text('#include "b.h"')
    (tmp_path / "inc" / "b.h").write_text("")
    assert names_of('#include "inc/a.h"', tmp_path) == ["inc/a.h", "inc/b.h"]


def test_missing_header_is_no_error(tmp_path: Path):
    assert names_of("#include <nothing.h>", tmp_path) == []


def test_changed_header_changes_its_digest(tmp_path: Path):
    (tmp_path / "a.h").write_text("int a;")
    before = included_files('#include "a.h"', tmp_path, ())
    (tmp_path / "a.h").write_text("int b; // other")
    assert included_files('#include "a.h"', tmp_path, ()) != before


def test_macro_as_header_name_is_incomplete(tmp_path: Path):
    assert not included_files("#include HEADER", tmp_path, ()).is_complete
    (tmp_path / "a.h").write_text("#include HEADER")
    assert not included_files("#include <a.h>", tmp_path, [str(tmp_path)]).is_complete
    assert included_files("#include <a.h>", tmp_path / "elsewhere", (), toolkit=[str(tmp_path)]).is_complete
