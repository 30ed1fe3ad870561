"""PyTorch adapter of tenferro_interop: tensor state, current stream, version counters."""

from ._producer import PRODUCER as PRODUCER

__all__ = ["PRODUCER"]
