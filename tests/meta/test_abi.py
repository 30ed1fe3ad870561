"""The DLPack structs that we declare, against the header that PyTorch ships: size and offset of every field."""

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


def torch_header() -> Path | None:
    package = importlib.util.find_spec("torch")
    header = Path(package.origin).parent / "include/ATen/dlpack.h" if package and package.origin else None
    return header if header and header.exists() else None


def assertions() -> list[str]:
    lines = [f'_Static_assert((long)({ours}) == (long)({theirs}), "{ours}");' for ours, theirs in CONSTANTS.items()]
    for (ours, theirs), fields in STRUCTS.items():
        lines.append(f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "{ours}");')
        lines += [
            f'_Static_assert(offsetof({ours}, {mine}) == offsetof({theirs}, {his}), "{ours}.{mine}");'
            for mine, his in fields.items()
        ]
    return lines


@pytest.mark.skipif(torch_header() is None, reason="no DLPack header is installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_dlpack_structs_are_those_of_the_installed_header(tmp_path: Path) -> None:
    source = tmp_path / "abi.c"
    includes = [f'#include "{torch_header()}"', f'#include "{NATIVE / "dlpack_abi.h"}"']
    source.write_text("\n".join([*includes, *assertions(), ""]))
    done = subprocess.run(["gcc", "-std=c11", "-fsyntax-only", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
