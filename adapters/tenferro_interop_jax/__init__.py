"""JAX adapter of tenferro_interop: array state, the read-only rule, callback streams."""

from ._producer import PRODUCER as PRODUCER

__all__ = ["PRODUCER"]
