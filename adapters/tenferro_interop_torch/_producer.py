"""What PyTorch adds to DLPack: states that a raw pointer would misread, autograd's rules, version counters.

PyTorch's C exchange API checks nothing (https://github.com/dmlc/dlpack/issues/180), so the state is looked at here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

import tenferro_interop as tfi

from ._layout import measure

_SUB_BYTE = frozenset(
    getattr(torch, name)
    for name in (f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8))
    if hasattr(torch, name)
)
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


class TorchProducer(tfi.Producer):
    """Producer for `torch.Tensor`, `torch.nn.Parameter` and subclasses."""

    name = "torch"
    stream_ordered = True
    tracks_writes = True

    def __init__(self) -> None:
        self.layout = measure()

    @property
    def exact_types(self) -> tuple[type, ...]:
        """The two types whose memory is always their own; subclasses may mean something else by it."""
        return (torch.Tensor, torch.nn.Parameter)

    def check(self, tensor: Any, write: bool) -> None:
        """Refuse transform wrappers, fake and meta tensors, lazy bits, layouts without strides, recorded writes.

        Raises `ValidationError`, `DTypeError` for sub-byte types, `UnsupportedError` inside transforms.
        """
        if _is_wrapped(tensor) or _is_fake(tensor):
            _refuse_traced(tensor)
        if (
            tensor.layout is not torch.strided
            or tensor.is_nested
            or tensor.is_quantized
            or tensor.device.type == "meta"
        ):
            _refuse_layout(tensor)
        if tensor.is_neg() or (tensor.is_complex() and tensor.is_conj()) or torch._is_zerotensor(tensor):
            _refuse_lazy(tensor)
        if tensor.dtype in _SUB_BYTE:
            raise tfi.DTypeError(
                f"torch tensor must have a whole-byte element type, got {tensor.dtype}, which PyTorch exports as int8. "
                "Pass `x.view(torch.uint8)`",
                op="tensor",
                actual=str(tensor.dtype),
            )
        if write and tensor.requires_grad and torch.is_grad_enabled():
            raise tfi.ValidationError(
                "tensor that requires grad must not be written by a raw kernel while autograd records. Write under "
                "`torch.no_grad()`, or to `x.detach()`",
                op="tensor_mut",
                actual="requires_grad",
            )

    def exportable(self, tensor: Any) -> Any:
        """Return the tensor detached: `__dlpack__` refuses one that requires grad, which reading does not mind."""
        return tensor.detach() if tensor.requires_grad else tensor

    def wrote(self, tensor: Any) -> None:
        """Bump the version counter, so that backward notices a clobbered saved tensor."""
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)

    def current_stream(self, ordinal: int) -> int | None:
        """Return torch's current stream on that GPU."""
        return int(torch.cuda.current_stream(ordinal).cuda_stream)

    def stream_of(self, obj: Any) -> int | None:
        """Return the handle of a `torch.cuda.Stream` older than `__cuda_stream__`."""
        return int(obj.cuda_stream) if isinstance(obj, torch.cuda.Stream) else None


def _is_fake(tensor: Any) -> bool:
    return isinstance(tensor, torch._subclasses.FakeTensor) or torch._is_functional_tensor(tensor)


def _refuse_traced(tensor: Any) -> NoReturn:
    raise tfi.UnsupportedError(
        f"torch tensor must hold real data, got {type(tensor).__name__} inside a transform or a trace (vmap, grad, "
        "torch.compile). Register the kernel as an operator of the torch adapter instead",
        op="tensor",
        actual=type(tensor).__name__,
    )


def _refuse_layout(tensor: Any) -> NoReturn:
    what = "nested" if tensor.is_nested else "quantised" if tensor.is_quantized else str(tensor.layout)
    what = "meta" if tensor.device.type == "meta" else what
    raise tfi.LayoutError(
        f"torch tensor must be a dense strided tensor with memory, got {what}. Pass its values as a dense tensor",
        op="tensor",
        actual=what,
    )


def _refuse_lazy(tensor: Any) -> NoReturn:
    bit, fix = ("zero-tensor", "clone()")
    if tensor.is_neg():
        bit, fix = "negative", "resolve_neg()"
    elif tensor.is_complex() and tensor.is_conj():
        bit, fix = "conjugate", "resolve_conj()"
    raise tfi.ValidationError(
        f"torch tensor must have its values in memory, got one with the lazy {bit} bit. Pass `x.{fix}`",
        op="tensor",
        actual=bit,
    )


PRODUCER = TorchProducer()
