"""One refused launch, as the texts about it see it: who, what, and the argument at fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._errors import TenferroError
from ._signature import Parameter
from ._tensors import TensorRef


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


def measure(case: Case) -> Any:
    """Return a strided reading of the tensor at fault, for its facts; refusals do not matter here."""
    if isinstance(case.value, TensorRef):
        return case.value
    return _core.reference(case.session, case.value, False, True, TensorRef)[1]
