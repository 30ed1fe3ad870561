"""The words for what the compiled core refuses: it returns a code and an argument index, the text is made here.

Here is what concerns the whole call: the session's state, the function, the geometry, the driver's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _core
from ._case import Case
from ._devices.cuda_driver import failure
from ._errors import BackendError, RuntimeStateError, SignatureError, TenferroError, ValidationError
from ._explain_arguments import ARGUMENT_TEXTS


def explain_launch(
    code: int, index: int, session: Any, function: Any, config: Any, args: Sequence[object]
) -> TenferroError:
    """Return the error for a refused launch, or (with an operation's name as `function`) a refused call."""
    return _TEXTS[_core.REFUSALS[code]](Case(index, session, function, config, args))


def _closed(case: Case) -> TenferroError:
    return case.error(
        RuntimeStateError, "session must be open, got a closed one. Open a new one with `tfi.session(...)`"
    )


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
    facts: dict[str, Any] = {"recent": [kernel.name for kernel in session.recent_kernels]}
    if case.kernel is None:
        return failure(case.op, session.driver_status, **facts)
    return failure(case.op, session.driver_status, kernel=case.kernel, **facts)


def _kernel_fault(case: Case) -> TenferroError:
    return case.error(BackendError, f"kernel {case.kernel!r}: {case.session.message}", code=case.session.driver_status)


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
    **ARGUMENT_TEXTS,
    "CLOSED": _closed,
    "WRONG_THREAD": _wrong_thread,
    "FORKED": _forked,
    "FAILED_RUNTIME": _failed_runtime,
    "FOREIGN_FUNCTION": _foreign_function,
    "CLOSED_MODULE": _closed_module,
    "COUNT": _count,
    "GEOMETRY": _geometry,
    "SHARED_MEMORY": _shared_memory,
    "CLUSTER": _cluster,
    "COOPERATIVE": _cooperative,
    "DRIVER": _driver,
    "KERNEL_FAULT": _kernel_fault,
    "NOT_A_FUNCTION": _not_a_function,
    "LAUNCH_MODE": _launch_mode,
    "CLOSE_ORDER": _close_order,
    "CONTEXT_LOST": _context_lost,
}


def place_error(error: Exception, index: int, session: Any, function: Any, args: Sequence[object]) -> Exception:
    """Say which argument of which kernel an import error is about."""
    if isinstance(error, TenferroError) and error.op in ("tensor", "tensor_mut") and index >= 0:
        case = Case(index, session, function, None, args)
        error.args = (f"{case.subject}: {error.args[0]}",)
        error.__dict__.update(case.facts, op="launch")
    return error
