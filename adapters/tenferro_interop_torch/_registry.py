"""What PyTorch keeps of our operators: one library for each namespace, kept as long as the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tenferro_interop as tfi

_libraries: dict[str, torch.library.Library] = {}
_DEVICES = ("CPU", "CUDA")


def define(name: str, schema: str) -> Any:
    """Define ``library::operator[.overload]`` and return the overload; raises `ValidationError` where it exists."""
    namespace, _, plain = name.partition("::")
    library = _libraries.get(namespace)
    if library is None:
        library = _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    base, _, variant = plain.partition(".")
    found = torch._C._jit_get_schemas_for_operator(f"{namespace}::{base}")
    if any(known.overload_name == variant for known in found):
        raise tfi.ValidationError(
            f"operator name must be free, got {name!r}, which is registered already. Choose another, or declare the "
            "operator once, in a module that is imported",
            op="op",
            argument="name",
            actual=name,
        )
    library.define(plain + schema, tags=(torch.Tag.pt2_compliant_tag,))
    return getattr(getattr(getattr(torch.ops, namespace), base), variant or "default")


def register(
    overload: Any,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    gradient: Callable[..., Any],
    batch: Callable[..., Any],
    autocast: torch.dtype | None,
) -> None:
    """Give the overload its kernels."""
    name = overload.name()
    namespace, _, plain = name.partition("::")
    library = _libraries[namespace]
    for device in _DEVICES:
        library.impl(plain, kernel, device)
    torch.library.register_fake(name, fake, lib=library)
    library.impl(plain, gradient, "Autograd", with_keyset=True)
    torch.library.register_vmap(overload, batch, lib=library)
    if autocast is not None:
        for device in _DEVICES:
            torch.library.register_autocast(overload, device.lower(), autocast, lib=library)
