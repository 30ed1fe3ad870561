"""A call of a `KernelSpec` as XLA makes it: checked once without data, then told to the handler as attributes."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _core
from ._errors import UnsupportedError, ValidationError
from ._launch import LaunchConfig
from ._modules import PreparedLaunch
from ._session import Session
from ._spec import KernelSpec, TensorSpec
from ._spec_parameters import SpecParameter

_PARAMETER = struct.Struct("<BBBxHHQ")  # `tfi_xla_parameter` of xla_handler.h
_ROLES = {"input": _core.XLA_READS, "output": _core.XLA_MAKES, "inout": _core.XLA_UPDATES}
_ALIGNMENT = 256  # of the addresses that stand for buffers, and of XLA's own
_NUMBER_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class XlaCall:
    """What the handler is told of one call, as attributes of XLA's custom call.

    `kernel` is a content hash, the same in every process; `plan` and `numbers` are bytes, `launch` holds grid, block
    and dynamic shared memory.  XLA's arguments are the tensors that the caller passes, its results those that the
    kernel writes, both in the kernel's order.
    """

    kernel: int
    plan: bytes
    numbers: bytes
    launch: tuple[int, ...]


def xla_handler(device: str) -> object:
    """Return the capsule of the handler for ``"cpu"`` or ``"cuda"``, to be registered with XLA once.

    Raises `ValidationError` for another device.
    """
    if device not in ("cpu", "cuda"):
        raise ValidationError(
            f"device must be 'cpu' or 'cuda', got {device!r}", op="xla_handler", argument="device", actual=device
        )
    return _core.xla_capsule(device == "cuda")


def xla_call(session: Session, spec: KernelSpec, arguments: Mapping[str, Any]) -> XlaCall:
    """Check a call as a launch on the session's device would be, and let the handler of this process find the kernel.

    `arguments` holds a `TensorSpec` or a number for each parameter that a caller passes.  Nothing is enqueued.

    Raises what a launch raises, and `UnsupportedError` for clusters, cooperative and programmatic launches and for
    numbers beyond what the handler takes.
    """
    plan = spec.plan(arguments)
    everything = {**arguments, **plan.outputs, **plan.values}
    function = spec.function(session, plan.kernel)
    _require_plain(spec, plan.config)
    stand_ins = _StandIns(session)
    args = [stand_ins.of(everything[p.name]) if p.is_tensor else everything[p.name] for p in spec.parameters]
    prepared = session.prepare(function, plan.config, args)
    table, numbers = _pack(spec, everything, prepared)
    digest = hashlib.sha256(f"{spec.digest}\0{plan.kernel}".encode()).digest()
    key = int.from_bytes(digest[:8], "little") >> 1  # MLIR's Python attributes take 63 bits
    names = [plan.kernel, *(p.name for p in spec.parameters)]
    _core.xla_register(key, prepared, "".join(f"{name}\0" for name in names).encode())
    config = plan.config
    launch = (0,) * 7 if config.empty else (*config.grid, *config.block, config.shared_mem_bytes)
    return XlaCall(key, table, numbers, launch)


def _pack(spec: KernelSpec, everything: Mapping[str, Any], prepared: PreparedLaunch) -> tuple[bytes, bytes]:
    """Return the handler's table of parameters and the numbers' bytes."""
    table, numbers = bytearray(), bytearray()
    argument = result = 0
    for index, p in enumerate(spec.parameters):
        value = everything[p.name]
        if p.is_tensor:
            nbytes = value.size * value.dtype.itemsize
            table += _PARAMETER.pack(_ROLES[p.role], value.dtype.code, value.dtype.bits, argument, result, nbytes)
            argument, result = argument + (p.role != "output"), result + (p.role != "input")
            continue
        table += _PARAMETER.pack(_core.XLA_NUMBER, 0, 0, 0, 0, len(numbers))
        data = _number(spec, p, prepared, index)
        numbers += data + bytes(-len(data) % _NUMBER_ALIGNMENT)
    if len(spec.parameters) > _core.XLA_MAX_PARAMETERS or len(numbers) > _core.XLA_MAX_NUMBERS:
        raise UnsupportedError(
            f"kernel {spec.name!r} must have at most {_core.XLA_MAX_PARAMETERS} parameters and "
            f"{_core.XLA_MAX_NUMBERS} bytes of numbers for XLA, got {len(spec.parameters)} and {len(numbers)}",
            op="xla_call",
        )
    return bytes(table), bytes(numbers) or bytes(_NUMBER_ALIGNMENT)


def _number(spec: KernelSpec, p: SpecParameter, prepared: PreparedLaunch, index: int) -> bytes:
    data = _core.xla_number(prepared, index)
    if not data:
        raise UnsupportedError(
            f"argument {p.name!r} of kernel {spec.name!r} must have a size that the compiler tells, got none. Pass a "
            "`KernelArg`",
            op="xla_call",
            argument=p.name,
        )
    return data


class _StandIns:
    """Makes tensors without memory: each has addresses of its own, which nothing reads."""

    def __init__(self, session: Session) -> None:
        self._device = (session.device_type, session.device_id)
        self._next = 1 << 20

    def of(self, tensor: TensorSpec) -> _StandIn:
        address = self._next
        self._next += tensor.size * tensor.dtype.itemsize // _ALIGNMENT * _ALIGNMENT + 2 * _ALIGNMENT
        return _StandIn(address, tensor, self._device)


class _StandIn:
    """A tensor without memory, to check a launch with."""

    def __init__(self, address: int, tensor: TensorSpec, device: tuple[int, int]) -> None:
        self._address, self._tensor, self._device = address, tensor, device

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the session's device."""
        return self._device

    def __dlpack__(self, **_: object) -> object:
        """Return a compact row-major capsule."""
        strides: list[int] = []
        step = 1
        for extent in reversed(self._tensor.shape):
            strides.insert(0, step)
            step *= extent
        return _core.wrap_memory(
            self._address, self._tensor.shape, strides, self._tensor.dtype, self._device, False, self
        )


def _require_plain(spec: KernelSpec, config: LaunchConfig) -> None:
    if config.cluster is not None or config.cooperative or config.programmatic:
        raise UnsupportedError(
            f"launch of kernel {spec.name!r} by XLA must be plain, got {config}. Launch it in a session, from a "
            "callback of the JAX adapter",
            op="xla_call",
            actual=config,
        )
