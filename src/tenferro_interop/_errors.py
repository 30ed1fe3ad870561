"""Every exception of the package, and the tree they form.

TenferroError                      op, argument, expected, actual, and further facts as attributes
├── ValidationError (ValueError)   the call itself is wrong; nothing was enqueued
│   ├── DTypeError (TypeError)     an element type that the kernel or the package does not take
│   ├── LayoutError                strides, alignment or extent that a raw pointer cannot express
│   ├── AliasError                 a written span overlaps another argument
│   ├── SignatureError (TypeError) number, kind or width of the kernel's arguments
│   │   └── ScalarRangeError (OverflowError)   a number that does not fit the declared width
│   └── ExportError (BufferError)  a DLPack request that the protocol lets us refuse
├── RuntimeStateError (RuntimeError)   right call, wrong moment: closed, other thread, other device, failed runtime
├── BackendError (RuntimeError)    the driver, the compiler or a running kernel failed; code, name and log are kept
│   └── CompileError               the compiler refused the source; log holds its text
└── UnsupportedError (NotImplementedError)   not available on this device or not supported by design
"""


class TenferroError(Exception):
    """Base of all errors raised by this package; facts beside the text are attributes.

    `op` is the operation ("launch", "tensor", ...), `argument` the parameter or argument at fault, `expected` and
    `actual` what was wanted and what came.  Further keyword facts (`device`, `kernel`, `index`, ...) become attributes.
    """

    op: str
    argument: str | None
    expected: object
    actual: object

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        argument: str | None = None,
        expected: object = None,
        actual: object = None,
        **facts: object,
    ) -> None:
        super().__init__(message)
        self.op = op
        self.argument = argument
        self.expected = expected
        self.actual = actual
        self.__dict__.update(facts)

    def __str__(self) -> str:
        """Return the text, led by the operation when it is known."""
        text = super().__str__()
        return f"{self.op}: {text}" if self.op else text


class ValidationError(TenferroError, ValueError):
    """The call is wrong as written; nothing was enqueued and the session goes on."""


class DTypeError(ValidationError, TypeError):
    """An element type does not match the kernel's, or has no faithful raw form."""


class LayoutError(ValidationError):
    """Strides, alignment or extent that a kernel reading a bare pointer would misread."""


class AliasError(ValidationError):
    """Memory that the kernel writes overlaps another argument of the same call."""


class SignatureError(ValidationError, TypeError):
    """The number, kind or width of the arguments differs from the kernel's parameters."""


class ScalarRangeError(SignatureError, OverflowError):
    """A number does not fit the width that the kernel declares."""


class ExportError(ValidationError, BufferError):
    """A DLPack export was asked for something that cannot be given."""


class RuntimeStateError(TenferroError, RuntimeError):
    """The call came at the wrong moment or place: closed, other thread, other device, failed runtime."""


class BackendError(TenferroError, RuntimeError):
    """The driver, a compiler or a running kernel reported a failure.

    `code` and `name` are the driver's own (`CUresult`), `log` is the compiler's or loader's text.
    """

    code: int | None
    name: str
    log: str

    def __init__(
        self, message: str, *, op: str = "", code: int | None = None, name: str = "", log: str = "", **facts: object
    ) -> None:
        super().__init__(message, op=op, **facts)  # type: ignore[arg-type]  # facts may hold the base's own names
        self.code = code
        self.name = name
        self.log = log


class CompileError(BackendError):
    """The compiler refused the source; `log` holds what it said, `options` what it was given."""


class UnsupportedError(TenferroError, NotImplementedError):
    """The request is outside what this device or this package supports; the text names what to do instead."""
