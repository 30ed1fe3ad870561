"""Modules and functions: loaded images, symbol look-up, and the in-memory cache of compiled sources."""

from __future__ import annotations

import difflib
from dataclasses import replace
from types import TracebackType
from weakref import WeakValueDictionary

from . import _core
from ._devices import Limits, LoadedKernel
from ._errors import BackendError, RuntimeStateError, SignatureError, TenferroError, UnsupportedError, ValidationError
from ._launch import LaunchConfig
from ._runtime import LoadedImage
from ._signature import Signature, from_text

_KINDS = {"scalar": 0, "pointer": 1, "struct": 2, "unknown": 3}
_ACCESS = {False: 0, True: 1, None: 2}


class Function(_core.Kernel):
    """One kernel, ready to launch; keeps its module loaded.  Made by `Module.function`.

    Attributes: `name`; `signature` (or None); `limits`.
    """

    __slots__ = ("__weakref__", "limits", "loaded", "name", "signature")

    name: str
    loaded: LoadedImage
    signature: Signature | None
    limits: Limits

    def __init__(self) -> None:
        raise RuntimeStateError(
            "Function must come from `module.function(name)`, got a direct construction", op="function"
        )

    @classmethod
    def _make(cls, loaded: LoadedImage, kernel: LoadedKernel, signature: Signature | None, may_alias: bool) -> Function:
        self = cls.__new__(cls)
        self.name, self.loaded, self.signature, self.limits = kernel.name, loaded, signature, kernel.limits
        self._configure(loaded.runtime, kernel.handle, _parameters(signature), may_alias, loaded.image.check)
        limits = kernel.limits
        self._limit(
            limits.max_grid,
            limits.max_block,
            limits.max_threads,
            limits.shared_default,
            limits.shared_limit,
            limits.cluster is not None,
            kernel.needs_cooperative,
        )
        return self

    def __del__(self) -> None:
        """Tell the image where it ran, for it must not be unloaded before."""
        loaded = getattr(self, "loaded", None)
        if loaded is not None:
            loaded.streams.update(self.streams)
            loaded.in_graph = loaded.in_graph or self.in_graph

    def _grant_shared(self, nbytes: int) -> None:
        """Opt in to more dynamic shared memory."""
        self._granted(self.loaded.grant_shared(self.handle_value, nbytes))

    def _check_mode(self, config: LaunchConfig) -> bool:
        return self._mode_problem(config) is not None

    def _mode_problem(self, config: LaunchConfig) -> tuple[type[TenferroError], str] | None:
        """Return what is wrong with clusters, cooperative or programmatic launch of this kernel here, or None."""
        limits, device = self.limits, self.runtime.name
        if self.runtime.device.kind == "cpu":
            return UnsupportedError, (
                "clusters, cooperative and programmatic launches are not supported on the CPU device. Use a plain "
                "launch"
            )
        if limits.cluster is not None and config.cluster != limits.cluster:
            return ValidationError, (
                f"kernel {self.name!r} was compiled for clusters of {limits.cluster} and must be launched with "
                f"`LaunchConfig(..., cluster={limits.cluster})`, got cluster {config.cluster}"
            )
        if config.cluster is not None and limits.cluster_limit == 1:
            return UnsupportedError, f"clusters need compute capability 9.0, {device} has less"
        if config.cooperative and not limits.cooperative:
            return UnsupportedError, f"{device} does not support cooperative launches"
        if config.programmatic and not limits.programmatic:
            return UnsupportedError, f"programmatic dependent launch needs compute capability 9.0, {device} has less"
        return None

    def __repr__(self) -> str:
        """Return name and parameters."""
        return f"<Function {self.name}{self.signature or '(...)'} on {self.runtime.name}>"


def _parameters(signature: Signature | None) -> list[tuple[int, int, int, int, int, int]] | None:
    if signature is None:
        return None
    out = []
    for p in signature.parameters:
        word = p.dtype.code | p.dtype.bits << 8 | p.dtype.lanes << 16
        out.append((_KINDS[p.kind], _ACCESS[p.written], p.size, word, p.element_size, p.element_align))
    return out


class PreparedLaunch(_core.PreparedCore):
    """A launch that was checked once and can be repeated; made by `Session.prepare`.

    Calling it enqueues on the stream of the calling thread's innermost session, so that it is captured rightly into
    CUDA graphs.  It keeps its tensors alive; they must not be resized between calls.

    Example:
        >>> import numpy as np, tenferro_interop as tfi
        >>> x = np.zeros(2, "i4")
        >>> with tfi.session(like=x) as s:
        ...     source = 'extern "C" __global__ void next(int* x) { x[threadIdx.x] += 1; }'
        ...     step = s.prepare(s.compile_nvrtc(source).function("next"), tfi.LaunchConfig(1, 2), [x])
        ...     step(), step()
        (None, None)
        >>> x.tolist()
        [2, 2]
    """

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        raise RuntimeStateError(
            "PreparedLaunch must come from `Session.prepare`, got a direct construction", op="prepare"
        )


class Module:
    """A loaded image; usable in every session of its device.

    Made by `Session.compile_nvrtc`, `load_ptx` and `load_cubin`.  Stays loaded while the module or one of its functions
    is referenced and work may use it; `close()` only refuses further use.

    Example:
        >>> import tenferro_interop as tfi
        >>> with tfi.session("cpu") as s:
        ...     module = s.compile_nvrtc('extern "C" __global__ void one(int* x) { *x = 1; }')
        ...     module.names()
        ['one']
    """

    _loaded: LoadedImage
    _open: bool
    _functions: WeakValueDictionary[tuple[str, str | None, bool], Function]

    def __init__(self) -> None:
        raise RuntimeStateError("Module must come from a session, got a direct construction", op="module")

    @classmethod
    def _make(cls, loaded: LoadedImage) -> Module:
        self = object.__new__(cls)
        self._loaded, self._open = loaded, True
        self._functions = WeakValueDictionary()
        return self

    def names(self) -> list[str]:
        """Return the kernel names that `function` takes."""
        self._require_open()
        return self._loaded.image.names()

    def function(self, name: str, *, signature: str | None = None, may_alias: bool = False) -> Function:
        """Return a kernel by its plain name, its mangled name, or a name expression given at compile time.

        `signature`, such as ``"float a, const float* x, float* y, int n"``, says what the image does not; it is
        checked against what the image tells.  `may_alias` says that the kernel's contract allows written memory to
        overlap other arguments.

        Raises `ValidationError` for a name with NUL, `BackendError` for an unknown name (with the known ones),
        `SignatureError` for a signature that cannot be true.
        """
        self._require_open()
        if not isinstance(name, str) or "\0" in name:
            raise ValidationError(
                f"symbol must be a str without NUL, got {name!r}", op="module.function", argument="symbol"
            )
        key = (name, signature, may_alias)
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = self._look_up(name, signature, may_alias)
        return function

    def _look_up(self, name: str, signature: str | None, may_alias: bool) -> Function:
        declared = None if signature is None else from_text(signature)
        try:
            kernel = self._loaded.kernel(name, declared)
        except KeyError:
            raise self._missing(name) from None
        if declared is not None and kernel.signature is not None:
            _require_agreement(name, declared, kernel.signature)
        names = self._loaded.parameter_names.get(name.partition("<")[0].rpartition("::")[2], ())
        return Function._make(self._loaded, kernel, _named(kernel.signature or declared, names), may_alias)

    def _missing(self, name: str) -> BackendError:
        known = self._loaded.image.names()
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or [k for k in known if name in k]
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        return BackendError(
            f"kernel {name!r} must be in the module, got one with {sorted(known)}.{hint} A C++ kernel without "
            'extern "C" has a mangled name, a template needs `NvrtcOptions(name_expressions=("k<float>",))`',
            op="module.function",
            name="CUDA_ERROR_NOT_FOUND",
            code=500,
            candidates=sorted(known),
        )

    def _require_open(self) -> None:
        if not self._open:
            raise RuntimeStateError("module must be open, got a closed one", op="module.function")

    def close(self) -> None:
        """Refuse further use; the image is unloaded when nothing can be running it any more."""
        self._open = False
        for function in list(self._functions.values()):
            function.closed = True

    def __enter__(self) -> Module:
        """Return the module."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Return the device and the kernels."""
        state = ", ".join(self._loaded.image.names()) if self._open else "closed"
        return f"<Module on {self._loaded.runtime.name}: {state}>"


def _named(signature: Signature | None, names: tuple[str, ...]) -> Signature | None:
    """Add the source's parameter names to a signature that has none, for messages."""
    if signature is None or len(names) != len(signature.parameters) or any(p.name for p in signature.parameters):
        return signature
    pairs = zip(signature.parameters, names, strict=True)
    return replace(signature, parameters=tuple(replace(parameter, name=name) for parameter, name in pairs))


def _require_agreement(name: str, declared: Signature, actual: Signature) -> None:
    """Raise where the caller's signature contradicts what the image tells."""
    if len(declared.parameters) != len(actual.parameters):
        raise SignatureError(
            f"signature of {name!r} must have {len(actual.parameters)} parameters, got {len(declared.parameters)}",
            op="module.function",
            argument="signature",
            expected=str(actual),
            actual=str(declared),
        )
    for index, (mine, theirs) in enumerate(zip(declared.parameters, actual.parameters, strict=True)):
        same_kind = theirs.kind in {"unknown", mine.kind}
        same_type = theirs.kind == "unknown" or mine.dtype == theirs.dtype
        if mine.size != theirs.size or not same_kind or not same_type:
            raise SignatureError(
                f"signature of {name!r} parameter {index} must be {theirs.c_name}, got {mine.c_name}",
                op="module.function",
                argument="signature",
                expected=theirs.c_name,
                actual=mine.c_name,
                index=index,
            )
