"""JAX adapter of tenferro_interop: operators, callbacks, array state, the read-only rule."""

from ._callback import callback as callback
from ._op import Op as Op
from ._op import op as op
from ._producer import PRODUCER as PRODUCER

__all__ = ["PRODUCER", "Op", "callback", "op"]
