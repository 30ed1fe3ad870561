"""Element types: DLPack's (code, bits, lanes) triple and its names.

Codes are those of `DLDataTypeCode` in DLPack 1.3 (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

from typing import NamedTuple

INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = range(7)
# Past DLPack's own codes, used in kernel signatures only (see `_include/tfi_signature.h`).
POINTER, VOID, STRUCT = 253, 254, 255


class DType(NamedTuple):
    """One element type as DLPack writes it; `bits` counts one lane, a complex number whole."""

    code: int
    bits: int
    lanes: int = 1

    @staticmethod
    def named(name: str) -> DType | None:
        """Return the type of that name, such as ``float32``, or None."""
        return BY_NAME.get(name)

    @property
    def itemsize(self) -> int:
        """Bytes of one element, all lanes included."""
        return self.bits * self.lanes // 8

    @property
    def name(self) -> str:
        """The field's usual name, such as ``float32`` or ``float32x4``."""
        base = _NAMES.get((self.code, self.bits), f"dlpack(code={self.code}, bits={self.bits})")
        return base if self.lanes == 1 else f"{base}x{self.lanes}"

    def __str__(self) -> str:
        """Return the name."""
        return self.name


_NAMES: dict[tuple[int, int], str] = {
    **{(INT, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(UINT, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(FLOAT, bits): f"float{bits}" for bits in (16, 32, 64)},
    **{(COMPLEX, bits): f"complex{bits}" for bits in (32, 64, 128)},
    (BFLOAT, 16): "bfloat16",
    (BOOL, 8): "bool",
    (7, 8): "float8_e3m4",
    (8, 8): "float8_e4m3",
    (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
    (17, 4): "float4_e2m1fn",
    (VOID, 0): "void",
    (STRUCT, 0): "struct",
    (POINTER, 64): "pointer",
}

BY_NAME: dict[str, DType] = {name: DType(*key) for key, name in _NAMES.items() if key[0] < POINTER and key[1] % 8 == 0}
