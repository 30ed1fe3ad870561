"""JAX adapter of tenferro_interop: operators, array state, the read-only rule, callback streams."""

from ._op import Op as Op
from ._op import op as op
from ._producer import PRODUCER as PRODUCER

__all__ = ["PRODUCER", "Op", "op"]
