"""Operators of a Python function that launches by itself, under a schema that its author wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tenferro_interop as tfi


def checked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the kernel for the dispatcher: refuses results that share memory with an argument.

    PyTorch's schema would have to say so, and its compiler trusts the schema.
    """

    def kernel(*args: Any) -> Any:
        result = function(*args)
        given = {_storage(arg) for arg in args if isinstance(arg, torch.Tensor)}
        made = (result,) if isinstance(result, torch.Tensor) else result or ()
        if any(_storage(each) in given for each in made):
            raise tfi.AliasError(
                f"result of operator {name!r} must be memory of its own, got an argument or a view of one. Return "
                "nothing for what is changed in place, or a clone",
                op="op",
                actual=name,
            )
        return result

    return kernel


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
