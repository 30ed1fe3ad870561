"""The structs of DLPack and of XLA's FFI that we declare, against the headers that PyTorch and JAX ship."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
# Ours, theirs, and the fields that both have, by their names in each.
STRUCTS: dict[tuple[str, str], dict[str, str]] = {
    ("tfi_dl_device", "DLDevice"): {"device_type": "device_type", "device_id": "device_id"},
    ("tfi_dl_dtype", "DLDataType"): {"code": "code", "bits": "bits", "lanes": "lanes"},
    ("tfi_dl_tensor", "DLTensor"): {
        "data": "data", "device": "device", "ndim": "ndim", "dtype": "dtype", "shape": "shape", "strides": "strides",
        "byte_offset": "byte_offset",
    },
    ("tfi_dl_managed", "DLManagedTensor"): {"tensor": "dl_tensor", "manager_ctx": "manager_ctx", "deleter": "deleter"},
    ("tfi_dl_version", "DLPackVersion"): {"major": "major", "minor": "minor"},
    ("tfi_dl_managed_versioned", "DLManagedTensorVersioned"): {
        "version": "version", "manager_ctx": "manager_ctx", "deleter": "deleter", "flags": "flags",
        "tensor": "dl_tensor",
    },
    ("tfi_dl_exchange_header", "DLPackExchangeAPIHeader"): {"version": "version", "prev_api": "prev_api"},
    ("tfi_dl_exchange", "DLPackExchangeAPI"): {
        "header": "header",
        "allocate": "managed_tensor_allocator",
        "managed_from_object": "managed_tensor_from_py_object_no_sync",
        "object_from_managed": "managed_tensor_to_py_object_no_sync",
        "view_from_object": "dltensor_from_py_object_no_sync",
        "current_stream": "current_work_stream",
    },
}  # fmt: skip
CONSTANTS = {
    "TFI_DL_CPU": "kDLCPU",
    "TFI_DL_CUDA": "kDLCUDA",
    "TFI_DL_CUDA_HOST": "kDLCUDAHost",
    "TFI_DL_CUDA_MANAGED": "kDLCUDAManaged",
    "TFI_DL_FLAG_READ_ONLY": "DLPACK_FLAG_BITMASK_READ_ONLY",
    "TFI_DL_FLAG_IS_COPIED": "DLPACK_FLAG_BITMASK_IS_COPIED",
}


XLA_STRUCTS: dict[tuple[str, str], dict[str, str]] = {
    ("tfi_xla_extension", "XLA_FFI_Extension_Base"): {"struct_size": "struct_size", "type": "type", "next": "next"},
    ("tfi_xla_version", "XLA_FFI_Api_Version"): {"major_version": "major_version", "minor_version": "minor_version"},
    ("tfi_xla_metadata_extension", "XLA_FFI_Metadata_Extension"): {"base": "extension_base", "metadata": "metadata"},
    ("tfi_xla_error_create", "XLA_FFI_Error_Create_Args"): {"message": "message", "code": "errc"},
    ("tfi_xla_stream_get", "XLA_FFI_Stream_Get_Args"): {"context": "ctx", "stream": "stream"},
    ("tfi_xla_buffer", "XLA_FFI_Buffer"): {"dtype": "dtype", "data": "data", "rank": "rank", "dims": "dims"},
    ("tfi_xla_span", "XLA_FFI_ByteSpan"): {"ptr": "ptr", "len": "len"},
    ("tfi_xla_scalar", "XLA_FFI_Scalar"): {"dtype": "dtype", "value": "value"},
    ("tfi_xla_array", "XLA_FFI_Array"): {"dtype": "dtype", "size": "size", "data": "data"},
    ("tfi_xla_buffers", "XLA_FFI_Args"): {"size": "size", "types": "types", "buffers": "args"},
    ("tfi_xla_buffers", "XLA_FFI_Rets"): {"size": "size", "types": "types", "buffers": "rets"},
    ("tfi_xla_attrs", "XLA_FFI_Attrs"): {"size": "size", "types": "types", "names": "names", "attrs": "attrs"},
}  # fmt: skip
# Later versions of XLA append to these, so that only the places of their fields are compared.
XLA_GROWING: dict[tuple[str, str], dict[str, str]] = {
    ("tfi_xla_metadata", "XLA_FFI_Metadata"): {"api_version": "api_version", "traits": "traits"},
    ("tfi_xla_api", "XLA_FFI_Api"): {
        "api_version": "api_version", "error_create": "XLA_FFI_Error_Create", "stream_get": "XLA_FFI_Stream_Get",
    },
    ("tfi_xla_frame", "XLA_FFI_CallFrame"): {
        "extension_start": "extension_start", "api": "api", "context": "ctx", "stage": "stage", "args": "args",
        "rets": "rets", "attrs": "attrs",
    },
}  # fmt: skip
XLA_DTYPES = (
    "PRED", "S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F16", "F32", "F64", "C64", "BF16", "C128", "F8E5M2",
    "F8E4M3FN", "F8E4M3B11FNUZ", "F8E5M2FNUZ", "F8E4M3FNUZ", "F8E4M3", "F8E3M4", "F8E8M0FNU",
)  # fmt: skip
XLA_CONSTANTS = {
    "TFI_XLA_EXTENSION_METADATA": "XLA_FFI_Extension_Metadata",
    "TFI_XLA_STAGE_EXECUTE": "XLA_FFI_ExecutionStage_EXECUTE",
    "TFI_XLA_BUFFER": "XLA_FFI_ArgType_BUFFER",
    "TFI_XLA_ATTR_ARRAY": "XLA_FFI_AttrType_ARRAY",
    "TFI_XLA_ATTR_SCALAR": "XLA_FFI_AttrType_SCALAR",
    "TFI_XLA_COMMAND_BUFFER_COMPATIBLE": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
    "TFI_XLA_INVALID_ARGUMENT": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "TFI_XLA_NOT_FOUND": "XLA_FFI_Error_Code_NOT_FOUND",
    "TFI_XLA_INTERNAL": "XLA_FFI_Error_Code_INTERNAL",
    **{f"TFI_XLA_{name}": f"XLA_FFI_DataType_{name}" for name in XLA_DTYPES},
}


def torch_header() -> Path | None:
    package = importlib.util.find_spec("torch")
    header = Path(package.origin).parent / "include/ATen/dlpack.h" if package and package.origin else None
    return header if header and header.exists() else None


def xla_header() -> Path | None:
    package = importlib.util.find_spec("jaxlib")
    header = Path(package.origin).parent / "include/xla/ffi/api/c_api.h" if package and package.origin else None
    return header if header and header.exists() else None


def constants(names: dict[str, str]) -> list[str]:
    return [f'_Static_assert((long)({ours}) == (long)({theirs}), "{ours}");' for ours, theirs in names.items()]


def offsets(structs: dict[tuple[str, str], dict[str, str]]) -> list[str]:
    return [
        f'_Static_assert(offsetof({ours}, {mine}) == offsetof({theirs}, {his}), "{ours}.{mine}");'
        for (ours, theirs), fields in structs.items()
        for mine, his in fields.items()
    ]


def sizes(structs: dict[tuple[str, str], dict[str, str]]) -> list[str]:
    return [f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "{ours}");' for ours, theirs in structs]


def require_compiles(source: Path, headers: list[Path], assertions: list[str]) -> None:
    source.write_text("\n".join([*(f'#include "{header}"' for header in headers), *assertions, ""]))
    done = subprocess.run(["gcc", "-std=c11", "-fsyntax-only", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(torch_header() is None, reason="no DLPack header is installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_dlpack_structs_are_those_of_the_installed_header(tmp_path: Path) -> None:
    header = torch_header()
    assert header is not None
    assertions = [*constants(CONSTANTS), *sizes(STRUCTS), *offsets(STRUCTS)]
    require_compiles(tmp_path / "abi.c", [header, NATIVE / "dlpack_abi.h"], assertions)


@pytest.mark.skipif(xla_header() is None, reason="no header of XLA's FFI is installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_xla_structs_are_those_of_the_installed_header(tmp_path: Path) -> None:
    header = xla_header()
    assert header is not None
    assertions = [*constants(XLA_CONSTANTS), *sizes(XLA_STRUCTS), *offsets({**XLA_STRUCTS, **XLA_GROWING})]
    require_compiles(tmp_path / "abi.c", [header, NATIVE / "xla_ffi.h"], assertions)


def test_size_of_a_plan_entry_is_what_python_packs(tmp_path: Path) -> None:
    fields = {"role": 0, "code": 1, "bits": 2, "argument": 4, "result": 6, "size": 8}
    assertions = [
        f'_Static_assert(offsetof(tfi_xla_parameter, {name}) == {at}, "{name}");' for name, at in fields.items()
    ]
    require_compiles(tmp_path / "abi.c", [NATIVE / "xla_handler.h"], assertions)
