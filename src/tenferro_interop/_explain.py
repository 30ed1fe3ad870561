"""The words for what the compiled core refuses: it returns a code and an argument index, the text is made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _core
from ._devices.cuda_driver import failure
from ._errors import (
    AliasError,
    BackendError,
    DTypeError,
    ExportError,
    LayoutError,
    RuntimeStateError,
    ScalarRangeError,
    SignatureError,
    TenferroError,
    UnsupportedError,
    ValidationError,
)
from ._signature import Parameter
from ._tensors import TensorRef, device_name


class Case:
    """One refused launch: who, what, and the argument at fault."""

    def __init__(self, index: int, session: Any, function: Any, config: Any, args: Sequence[object]) -> None:
        self.index = index
        self.session = session
        self.function = function
        self.config = config
        self.args = args
        self.op = function if isinstance(function, str) and config is None else "launch"
        self.kernel = getattr(function, "name", None)

    @property
    def parameter(self) -> Parameter | None:
        """The parameter at fault, if the signature is known."""
        signature = getattr(self.function, "signature", None)
        return None if signature is None or self.index < 0 else signature.parameters[self.index]

    @property
    def subject(self) -> str:
        """Kernel, argument number and parameter, so that the line alone finds the bug."""
        parameter = self.parameter
        tail = "" if parameter is None else f" ({' '.join(filter(None, (parameter.c_name, parameter.name)))})"
        return f"kernel {self.kernel!r} argument {self.index}{tail}"

    @property
    def facts(self) -> dict[str, Any]:
        """What every launch error tells as attributes."""
        parameter = self.parameter
        name = None if parameter is None else parameter.name or str(self.index)
        return {"argument": name, "kernel": self.kernel, "index": self.index}

    @property
    def value(self) -> Any:
        """The argument at fault."""
        return self.args[self.index]

    def error(self, cls: type[TenferroError], text: str, **facts: Any) -> TenferroError:
        """Build the error with the facts every launch error has."""
        return cls(text, op=self.op, **{**self.facts, **facts})


def _measure(case: Case) -> Any:
    """Return a strided reading of the tensor at fault, for its facts; refusals do not matter here."""
    if isinstance(case.value, TensorRef):
        return case.value
    return case.session._reference(case.value, False, True, TensorRef)[1]


def _closed(case: Case) -> TenferroError:
    return case.error(RuntimeStateError, "session must be open, got a closed one. Open a new one with `tfi.session(...)`")


def _wrong_thread(case: Case) -> TenferroError:
    return case.error(
        RuntimeStateError, "session must be used in the thread that opened it, got another thread. Open one per thread"
    )


def _forked(case: Case) -> TenferroError:
    return case.error(
        RuntimeStateError,
        f"session must be used in the process that opened it (pid {case.session.process}), got a forked child. Start "
        "children with the 'spawn' method",
    )


def _failed_runtime(case: Case) -> TenferroError:
    return case.error(
        RuntimeStateError,
        f"runtime of {case.session.runtime.name} must be alive, got one whose context is poisoned by an earlier fault. "
        "Restart the process",
    )


def _foreign_function(case: Case) -> TenferroError:
    return case.error(
        RuntimeStateError,
        f"kernel {case.kernel!r} must be loaded on {case.session.runtime.name}, got one loaded on "
        f"{case.function.runtime.name}. Compile or load it in this session",
    )


def _closed_module(case: Case) -> TenferroError:
    return case.error(RuntimeStateError, f"module of kernel {case.kernel!r} must be open, got a closed one")


def _not_a_function(case: Case) -> TenferroError:
    got = type(case.function).__name__
    return case.error(
        ValidationError,
        f"function must be a kernel from `module.function(name)`, got {got}",
        argument="function",
        actual=got,
    )


def _count(case: Case) -> TenferroError:
    expected, got = case.function.parameter_count, len(case.args)
    return case.error(
        SignatureError,
        f"kernel {case.kernel!r} takes {expected} arguments, got {got}. Its parameters are {case.function.signature}",
        argument="args",
        expected=expected,
        actual=got,
    )


def _kind(case: Case) -> TenferroError:
    parameter, value = case.parameter, case.value
    got = type(value).__name__
    hint = ""
    if parameter is not None and parameter.kind == "pointer":
        hint = " Pass a tensor, `s.tensor(x)`, a DeviceBytes, or `KernelArg.null()`; a bare address is never taken."
    elif isinstance(value, bool):
        hint = " A bool is converted only for a bool parameter: pass `int(flag)`."
    elif hasattr(value, "__dlpack__"):
        hint = " Pass a number: `x.item()`."
    elif isinstance(value, float):
        hint = " Pass `int(x)` if that is meant."
    elif isinstance(value, complex):
        hint = " Pass `KernelArg.c64(z)` or `KernelArg.c128(z)`."
    elif parameter is not None and parameter.kind == "struct":
        hint = " Pass `KernelArg.struct(value)`, bytes, a ctypes structure or a NumPy record."
    text = f"{case.subject} must be {_wanted(parameter)}, got {got}.{hint}"
    return case.error(SignatureError, text.rstrip("."), expected=_wanted(parameter), actual=got)


def _wanted(parameter: Parameter | None) -> str:
    if parameter is None:
        return "a typed argument"
    words = {"pointer": "a tensor", "scalar": f"a number for {parameter.c_name}", "struct": f"a {parameter.c_name}"}
    return words.get(parameter.kind, "a typed argument")


def _scalar_range(case: Case) -> TenferroError:
    parameter = case.parameter
    declared = parameter.c_name if parameter else "the declared type"
    return case.error(
        ScalarRangeError, f"{case.subject} must fit {declared}, got {case.value!r}", expected=declared, actual=case.value
    )


def _scalar_type(case: Case) -> TenferroError:
    parameter = case.parameter
    declared = parameter.c_name if parameter else "the declared type"
    got = getattr(getattr(case.value, "dtype", None), "name", None) or repr(case.value)
    return case.error(
        SignatureError,
        f"{case.subject} must be {declared}, got a typed scalar {got}. Pass a Python number, which is converted with "
        "a range check, or the exact type",
        expected=declared,
        actual=got,
    )


def _struct_size(case: Case) -> TenferroError:
    parameter = case.parameter
    size = None if parameter is None else parameter.size
    got = len(case.value.data) if isinstance(case.value, _core.TypedArgument) else 8
    got = len(case.value) if isinstance(case.value, bytes) else got
    if hasattr(case.value, "nbytes") and not isinstance(case.value, _core.MemoryRef):
        got = case.value.nbytes
    return case.error(
        SignatureError,
        f"{case.subject} must have {size} bytes, got {got}. Match the kernel's struct, padding included "
        "(`np.dtype(..., align=True)`)",
        expected=size,
        actual=got,
    )


def _untyped(case: Case) -> TenferroError:
    return case.error(
        SignatureError,
        f"{case.subject} must say its type, for the image does not, got {type(case.value).__name__}. Pass "
        "`s.tensor(x)`, `s.tensor_mut(x)` or `KernelArg.i32(n)`, or give `module.function(name, signature=...)`",
        actual=type(case.value).__name__,
    )


def _null(case: Case) -> TenferroError:
    return case.error(
        SignatureError, f"{case.subject} must be a tensor, got None. A null pointer is `KernelArg.null()`", actual=None
    )


def _device(case: Case) -> TenferroError:
    return device_error(case.session, _measure(case), case.subject, case.op, **case.facts)


def device_error(session: Any, ref: Any, subject: str, op: str, **facts: Any) -> RuntimeStateError:
    """Return the error for a tensor that lives elsewhere."""
    here = session.runtime.name
    hint = "Copy it there first" if here == "cpu" else f"Move it with its framework, or open `tfi.session({ref.device!r})`"
    return RuntimeStateError(
        f"{subject} must be on {here}, got {ref.device}. {hint}",
        op=op,
        expected=here,
        actual=ref.device,
        device=ref.device,
        **{"argument": subject, **facts},
    )


def _dtype(case: Case) -> TenferroError:
    ref, parameter = _measure(case), case.parameter
    assert parameter is not None
    return case.error(
        DTypeError,
        f"{case.subject} must point to {parameter.dtype}, got {ref.dtype}. Convert the tensor, or use a kernel for "
        f"{ref.dtype}",
        expected=parameter.dtype.name,
        actual=ref.dtype.name,
    )


def _layout(case: Case) -> TenferroError:
    return layout_error(_measure(case), case.subject, case.op, **case.facts)


def layout_error(ref: Any, subject: str, op: str, **facts: Any) -> LayoutError:
    """Return the error for a tensor that is not compact row-major."""
    return LayoutError(
        f"{subject} must be compact row-major, got shape {ref.shape} with strides {ref.strides}. Pass "
        "`x.contiguous()` (NumPy: `np.ascontiguousarray(x)`), or take the strides yourself with "
        "`s.tensor(x, strided=True)`",
        op=op,
        actual=ref.strides,
        **{"argument": subject, **facts},
    )


def _alignment(case: Case) -> TenferroError:
    ref, parameter = _measure(case), case.parameter
    assert parameter is not None
    return case.error(
        LayoutError,
        f"{case.subject} must be aligned to {parameter.element_align} bytes, got an address that is "
        f"{ref._address % parameter.element_align} past it. Pass a copy, or a view that starts on the boundary",
        expected=parameter.element_align,
    )


def _element_multiple(case: Case) -> TenferroError:
    ref, parameter = _measure(case), case.parameter
    assert parameter is not None
    return case.error(
        LayoutError,
        f"{case.subject} must hold whole elements of {parameter.element_size} bytes, got {ref.nbytes} bytes",
        expected=parameter.element_size,
        actual=ref.nbytes,
    )


def _read_only(case: Case) -> TenferroError:
    return read_only_error(case.value, case.subject, case.op, **case.facts)


def read_only_error(value: object, subject: str, op: str, **facts: Any) -> ValidationError:
    """Return the error for writing what may not be written."""
    return ValidationError(
        f"{subject} must be writable, got a read-only {type(value).__module__}.{type(value).__qualname__}. Write to a "
        "copy, or to `s.alloc_output(...)`",
        op=op,
        actual="read-only",
        **{"argument": subject, **facts},
    )


def _write_through_ref(case: Case) -> TenferroError:
    return case.error(
        SignatureError, f"{case.subject} is written by the kernel and must be a TensorMut, got a TensorRef. Pass "
        "`s.tensor_mut(x)`"
    )  # fmt: skip


def _null_data(case: Case) -> TenferroError:
    return null_data_error(case.value, case.subject, case.op, **case.facts)


def null_data_error(value: object, subject: str, op: str, **facts: Any) -> ValidationError:
    """Return the error for elements without memory: fake and meta tensors, freed storage."""
    return ValidationError(
        f"{subject} must have memory, got a null pointer with elements from {type(value).__qualname__}. Fake, meta and "
        "freed tensors have none",
        op=op,
        **{"argument": subject, **facts},
    )


def _explicit(case: Case) -> TenferroError:
    return case.error(
        SignatureError,
        f"{case.subject} points to a struct, so the tensor must be given as `s.tensor(x)` or `s.tensor_mut(x)`, got "
        f"{type(case.value).__name__}",
    )


def _foreign_ref(case: Case) -> TenferroError:
    state = "another session" if case.value.is_valid else "a closed session"
    return case.error(
        RuntimeStateError, f"{case.subject} must be a reference of this session, got one of {state}. Make it with "
        "this session's `tensor`, `tensor_mut` or `alloc_bytes`"
    )  # fmt: skip


def _extent(case: Case) -> TenferroError:
    return case.error(LayoutError, f"{case.subject} must have an extent that 63-bit addresses can span, got more")


def _alias(case: Case) -> TenferroError:
    return case.error(
        AliasError,
        f"{case.subject} is written and must not overlap another argument, got overlapping memory. Pass a copy, or "
        "declare the kernel's contract with `module.function(name, may_alias=True)`",
    )


def _geometry(case: Case) -> TenferroError:
    config, kernel = case.config, case.function
    if not isinstance(config, _core.LaunchShape):
        return case.error(
            ValidationError, f"config must be a LaunchConfig, got {type(config).__name__}", argument="config"
        )
    limits = kernel.limits
    for name, extents, maxima in (("grid", config.grid, limits.max_grid), ("block", config.block, limits.max_block)):
        for axis, extent, limit in zip("xyz", extents, maxima, strict=True):
            if extent > limit:
                text = f"{name}.{axis} must be at most {limit} on {case.session.runtime.name}, got {extent}"
                return case.error(ValidationError, text, argument=name, expected=limit, actual=extent)
    x, y, z = config.block
    return case.error(
        ValidationError,
        f"block of kernel {case.kernel!r} must have at most {limits.max_threads} threads (the kernel's own maximum), "
        f"got {x}*{y}*{z} = {x * y * z}",
        argument="block",
        expected=limits.max_threads,
        actual=x * y * z,
    )


def _shared_memory(case: Case) -> TenferroError:
    limits, requested = case.function.limits, case.config.shared_mem_bytes
    return case.error(
        ValidationError,
        f"shared_mem_bytes must be at most {limits.shared_limit} (device limit "
        f"{limits.shared_limit + limits.static_shared} minus {limits.static_shared} static), got {requested}",
        argument="shared_mem_bytes",
        expected=limits.shared_limit,
        actual=requested,
    )


def _cluster(case: Case) -> TenferroError:
    return case.error(
        ValidationError,
        f"grid must be a multiple of the cluster in every axis, got grid {case.config.grid} with cluster "
        f"{case.config.cluster}",
        argument="grid",
        actual=case.config.grid,
    )


def _cooperative(case: Case) -> TenferroError:
    return case.error(
        ValidationError,
        f"kernel {case.kernel!r} waits for its whole grid and must be launched with "
        "`LaunchConfig(..., cooperative=True)`, got a plain launch",
        argument="config",
    )


def _launch_mode(case: Case) -> TenferroError:
    cls, text = case.function._mode_problem(case.config)
    error: TenferroError = case.error(cls, text, argument="config")
    return error


def _driver(case: Case) -> TenferroError:
    session = case.session
    facts = {"recent": [kernel.name for kernel in session.recent_kernels]}
    if case.kernel is None:
        return failure(case.op, session.driver_status, **facts)
    return failure(case.op, session.driver_status, kernel=case.kernel, **facts)


def _kernel_fault(case: Case) -> TenferroError:
    return case.error(BackendError, f"kernel {case.kernel!r}: {case.session.message}", code=case.session.driver_status)


def _bad_dtype(case: Case) -> TenferroError:
    return bad_dtype_error(_measure(case), case.subject, case.op, **case.facts)


def bad_dtype_error(ref: Any, subject: str, op: str, **facts: Any) -> DTypeError:
    """Return the error for an element type without an agreed raw form."""
    code, bits, lanes = ref.dtype_code
    return DTypeError(
        f"{subject} must have a whole-byte element type that DLPack names, got code={code} bits={bits} lanes={lanes}. "
        "View it as an integer type of the same width first",
        op=op,
        actual=(code, bits, lanes),
        **{"argument": subject, **facts},
    )


def _close_order(case: Case) -> TenferroError:
    return case.error(
        RuntimeStateError,
        "sessions must close in last-in first-out order and in the thread that opened them, got one that is not this "
        "thread's innermost",
    )


def _context_lost(case: Case) -> TenferroError:
    return case.error(
        RuntimeStateError,
        "the current context must be the session's when it closes, got another. Something pushed a context without "
        "popping it",
    )


_TEXTS: dict[str, Callable[[Case], TenferroError]] = {
    "CLOSED": _closed,
    "WRONG_THREAD": _wrong_thread,
    "FORKED": _forked,
    "FAILED_RUNTIME": _failed_runtime,
    "FOREIGN_FUNCTION": _foreign_function,
    "CLOSED_MODULE": _closed_module,
    "COUNT": _count,
    "KIND": _kind,
    "SCALAR_RANGE": _scalar_range,
    "SCALAR_TYPE": _scalar_type,
    "STRUCT_SIZE": _struct_size,
    "UNTYPED": _untyped,
    "DEVICE": _device,
    "DTYPE": _dtype,
    "LAYOUT": _layout,
    "ALIGNMENT": _alignment,
    "READ_ONLY": _read_only,
    "WRITE_THROUGH_REF": _write_through_ref,
    "NULL_DATA": _null_data,
    "EXPLICIT": _explicit,
    "FOREIGN_REF": _foreign_ref,
    "EXTENT": _extent,
    "ALIAS": _alias,
    "GEOMETRY": _geometry,
    "SHARED_MEMORY": _shared_memory,
    "CLUSTER": _cluster,
    "COOPERATIVE": _cooperative,
    "DRIVER": _driver,
    "KERNEL_FAULT": _kernel_fault,
    "ELEMENT_MULTIPLE": _element_multiple,
    "NOT_A_FUNCTION": _not_a_function,
    "LAUNCH_MODE": _launch_mode,
    "BAD_DTYPE": _bad_dtype,
    "CLOSE_ORDER": _close_order,
    "CONTEXT_LOST": _context_lost,
    "NULL_ARGUMENT": _null,
}


def explain_launch(
    code: int, index: int, session: Any, function: Any, config: Any, args: Sequence[object]
) -> TenferroError:
    """Return the error for a refused launch, or (with an operation's name as `function`) a refused call."""
    return _TEXTS[_core.REFUSALS[code]](Case(index, session, function, config, args))


def explain_import(what: str, obj: Any, detail: Any) -> Exception:
    """Return the error for a tensor that could not be imported, or an object that must not be constructed."""
    name = f"{type(obj).__module__}.{type(obj).__qualname__}"
    if what == "construct":
        made, op = type(obj).__name__, "tensor"
        where = "a session"
        if made == "Session":
            where, op = "`tenferro_interop.session(...)`", "session"
        return RuntimeStateError(f"{made} must come from {where}, got a direct construction", op=op)
    if what == "device":
        session, declared = detail
        where = device_name(*declared)
        return RuntimeStateError(
            f"tensor must be on {session.runtime.name}, got {where}", op="tensor", actual=where, device=where
        )
    if what == "export":
        return _export_refused(obj, name, *detail)
    texts = {
        "producer": f"tensor must offer __dlpack__ or __cuda_array_interface__, got {name}. A scalar is passed as a number",
        "capsule": f"__dlpack__ of {name} must return an unused DLPack capsule, got {_capsule_text(detail)}",
        "version": f"DLPack major version of {name} must be 1, got {detail}",
        "device_mismatch": f"__dlpack_device__ of {name} and its capsule must agree on the device type, got {detail}",
        "device_query": f"__dlpack_device__ of {name} failed: {detail}",
    }
    cls = SignatureError if what in ("producer", "capsule", "device_query") else ValidationError
    return cls(texts[what], op="tensor", actual=name)


def _capsule_text(answer: object) -> str:
    kind = type(answer).__name__
    return "one already consumed or of another kind" if kind == "PyCapsule" else kind


def _export_refused(obj: Any, name: str, session: Any, producer: Any, error: Exception) -> Exception:
    better = None if producer is None else producer.explain(obj, error)
    if better is not None:
        explained: Exception = better
        return explained
    declared = obj.__dlpack_device__()
    if not _lives_on(declared, session):
        return explain_import("device", obj, (session, declared))
    text = f"{name} refused to export itself: {error}"
    lowered = str(error).lower()
    if "dtype" in lowered or "dlpack equivalent" in lowered or "byte order" in lowered:
        return DTypeError(text, op="tensor", actual=name)
    if isinstance(error, TenferroError):
        return error
    if isinstance(error, NotImplementedError):
        return UnsupportedError(text, op="tensor", actual=name)
    return ExportError(text, op="tensor", actual=name)


def _lives_on(declared: tuple[int, int], session: Any) -> bool:
    if session.device_type == _core.DL_CPU:
        return declared[0] in (_core.DL_CPU, _core.DL_CUDA_HOST)
    return declared[0] in (_core.DL_CUDA, _core.DL_CUDA_MANAGED)
