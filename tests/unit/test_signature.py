"""Signatures from compiler words, C text, mangled names, PTX and the driver's sizes."""

from __future__ import annotations

import re

import pytest

from tenferro_interop import SignatureError
from tenferro_interop._c_types import _KNOWN
from tenferro_interop._dtypes import DType
from tenferro_interop._nvrtc import NvrtcOptions, compile_cubin
from tenferro_interop._signature import (
    OPAQUE_TYPE,
    POINTER_TYPE,
    VOID_TYPE,
    Signature,
    from_driver,
    from_mangled,
    from_ptx,
    from_text,
    from_words,
    merge,
)

FLOAT32 = DType(2, 32)


def only(text: str):
    (parameter,) = from_text(text).parameters
    return parameter


def test_words_of_a_const_pointer():
    word = 8 | 8 << 32 | 1 << 40 | 1 << 44 | 4 << 48
    (parameter,) = from_words([word, 2 | 32 << 8 | 1 << 16 | 4 << 32]).parameters
    assert (parameter.kind, parameter.size, parameter.align) == ("pointer", 8, 8)
    assert (parameter.dtype, parameter.element_size, parameter.element_align) == (FLOAT32, 4, 4)
    assert parameter.written is False


def test_odd_number_of_words_is_our_fault():
    with pytest.raises(AssertionError):
        from_words([1])


def test_text_prints_as_a_parameter_list():
    signature = from_text("float a, const float* x, float* y, int n")
    assert str(signature) == "(float, const float*, float*, int)"
    assert [p.name for p in signature.parameters] == ["a", "x", "y", "n"]


@pytest.mark.parametrize("text", ["", " ", "void"])
def test_text_without_parameters(text: str):
    assert from_text(text).parameters == ()


@pytest.mark.parametrize(
    ("text", "c_name", "name"),
    [
        ("float const *x", "const float*", "x"),
        ("const float* __restrict__", "const float*", ""),
        ("float* const x", "float*", "x"),
        ("volatile int* flag", "int*", "flag"),
        ("unsigned n", "unsigned int", "n"),
        ("unsigned", "unsigned int", ""),
        ("long int unsigned long n", "unsigned long long", "n"),
        ("long", "long long", ""),
        ("size_t n", "unsigned long long", "n"),
        ("std::int32_t n", "int", "n"),
        ("uint8_t* b", "unsigned char*", "b"),
        ("bool", "bool", ""),
        ("half h", "__half", "h"),
        ("__nv_bfloat16 const* b", "const __nv_bfloat16*", "b"),
        ("float4 v", "float4", "v"),
        ("const float4* v", "const float4*", "v"),
        ("float** p", "void**", "p"),
        ("const float* const* p", "void* const*", "p"),
        ("const void* p", "const void*", "p"),
        ("struct(24) p", "struct of 24 bytes", "p"),
        ("const ns::Pair<int, float>* p", "const struct*", "p"),
        ("struct Node* head", "struct*", "head"),
        ("float x[]", "float*", "x"),
        ("int [4]", "int*", ""),
    ],
)
def test_text_reads_declaration(text: str, c_name: str, name: str):
    assert (only(text).c_name, only(text).name) == (c_name, name)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("Foo x", "Foo"),
        ("struct P p", "P"),
        ("float& x", "&"),
        ("float x y", "x"),
        ("float* x y", "x"),
        ("long double x", "long double"),
        ("void (*f)(int)", "("),
        ("struct(0) p", "struct(0)"),
        ("float x[2][3]", "[2][3]"),
        ("1x", "1x"),
    ],
)
def test_text_error_names_the_token(text: str, token: str):
    with pytest.raises(SignatureError) as error:
        from_text(text)
    assert error.value.actual == token
    assert repr(token) in str(error.value)


@pytest.mark.parametrize("text", ["int,", ",int", "const", "*p"])
def test_text_error_for_a_missing_type(text: str):
    with pytest.raises(SignatureError, match="type name is missing"):
        from_text(text)


def test_sized_struct_takes_an_alignment():
    assert (only("struct(32, 16) p").size, only("struct(32, 16) p").align) == (32, 16)
    assert only("struct(24) p").align == 8
    assert only("struct(6) p").align == 2


def test_pointer_to_unknown_struct_has_no_element_size():
    parameter = only("Foo* p")
    assert (parameter.dtype, parameter.element_size, parameter.written) == (OPAQUE_TYPE, 0, True)


def test_text_agrees_with_the_compiler_on_every_type_by_value_and_by_pointer():
    builtin = [name for name in _KNOWN if name not in ("void", "CUtensorMap", "ssize_t") and "bf" not in name]
    plain = [name for name in builtin if "half" not in name and "fp8" not in name and not re.search("(ptr|_t$)", name)]
    text = ", ".join([*plain, *(f"const {name}*" for name in plain), "void*", "float**", "const float* const*"])
    compiled = compile_cubin(f"__global__ void k({text}) {{}}", NvrtcOptions(), arch="sm_90").signatures["k"]
    assert from_text(text).parameters == compiled.parameters


def test_mangled_function():
    signature = from_mangled("_ZN2ns5scaleIdEEvPKT_i")
    assert signature is not None
    assert str(signature) == "(const double*, int)"
    assert signature.source == "mangled name"


def test_mangled_struct_by_value_stays_unknown():
    signature = from_mangled("_Z2st6ParamsPK6__half")
    assert signature is not None
    assert [p.kind for p in signature.parameters] == ["unknown", "pointer"]
    assert signature.parameters[0].size == 0


def test_mangled_anonymous_namespace():
    assert str(from_mangled("_ZN12_GLOBAL__N_14anonEPi")) == "(int*)"


def test_mangled_reference_leaves_the_others_known():
    assert str(from_mangled("_Z1tPKfRK1P")) == "(const float*, unknown type)"


@pytest.mark.parametrize("name", ["axpy", "_Z", "_ZTV1A", "_Z3foo", "é", "_Z1kIfEvN1XIT_E4typeE"])
def test_not_a_readable_mangled_function(name: str):
    assert from_mangled(name) is None


PTX = """
.version 9.0
.target sm_90
.address_size 64
// .entry commented(.param .u64 x)
.visible .entry plain(
	.param .f32 plain_param_0,
	.param .u64 plain_param_1,
	.param .u32 plain_param_2,
	.param .align 8 .b8 plain_param_3[16]
)
.maxntid 256
{ ret; }
.visible .entry _Z5typedfPKf6Params(
	.param .f32 _Z5typedfPKf6Params_param_0,
	.param .u64 .ptr .global .align 16 _Z5typedfPKf6Params_param_1,
	.param .align 4 .b8 _Z5typedfPKf6Params_param_2[12]
)
{ ret; }
.entry empty() { ret; }
.entry bare { ret; }
.entry pointer(.param .u64 .ptr .global .align 4 p) { ret; }
.entry _Z5wrongi(.param .u64 p) { ret; }
"""


def test_ptx_entries():
    entries = from_ptx(PTX)
    assert set(entries) == {"plain", "_Z5typedfPKf6Params", "empty", "bare", "pointer", "_Z5wrongi"}


def test_ptx_keeps_integers_and_pointers_unknown():
    parameters = from_ptx(PTX)["plain"].parameters
    assert [(p.kind, p.size) for p in parameters] == [("scalar", 4), ("unknown", 8), ("unknown", 4), ("struct", 16)]
    assert parameters[0].dtype == FLOAT32
    assert parameters[1].written is None


def test_ptx_takes_types_from_a_mangled_name():
    signature = from_ptx(PTX)["_Z5typedfPKf6Params"]
    assert str(signature) == "(float, const float*, struct of 12 bytes)"
    assert signature.source == "ptx"


def test_ptx_ignores_a_mangled_name_of_other_sizes():
    assert [p.kind for p in from_ptx(PTX)["_Z5wrongi"].parameters] == ["unknown"]


def test_ptx_pointer_attribute():
    (parameter,) = from_ptx(PTX)["pointer"].parameters
    assert (parameter.kind, parameter.element_align, parameter.written) == ("pointer", 4, None)
    assert parameter.dtype == VOID_TYPE


def test_driver_knows_sizes_only():
    signature = from_driver([(0, 4), (8, 8)])
    assert str(signature) == "(4 bytes of unknown type, 8 bytes of unknown type)"


def test_merge_accepts_and_fills_sizes():
    declared = from_mangled("_Z1kPf6Params")
    assert declared is not None
    assert [p.size for p in merge(declared, [(0, 8), (8, 24)]).parameters] == [8, 24]


def test_merge_names_index_and_both_sizes():
    with pytest.raises(SignatureError) as error:
        merge(from_text("float a, double b"), [(0, 4), (4, 4)])
    assert (error.value.index, error.value.expected, error.value.actual) == (1, 4, 8)
    assert error.value.argument == "b"


def test_merge_names_both_counts():
    with pytest.raises(SignatureError) as error:
        merge(from_text("float a"), [(0, 4), (4, 4)])
    assert (error.value.expected, error.value.actual) == (2, 1)


def test_signatures_compare_and_hash():
    assert from_text("int n") == from_text("int n")
    assert len({from_text("int n"), from_text("int n"), Signature((), "text")}) == 2
    assert only("float** p").dtype == POINTER_TYPE
