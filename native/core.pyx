# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=False
"""The compiled core: imports tensors, checks and packs arguments, launches.

The fast path decides and Python explains: a refused call leaves here as a code and an argument index, and
`_explain.py` writes the text.  Global state is the resolved driver table, the per-type table and the Python hooks.
"""

include "abi.pxi"
include "hooks.pxi"
include "dlpack.pxi"
include "scalars.pxi"
include "objects.pxi"
include "checks.pxi"
include "pack.pxi"
include "session.pxi"
include "streams.pxi"
include "enqueue.pxi"
include "references.pxi"
include "export.pxi"
include "prepared.pxi"
include "xla.pxi"

tfi_fork_watch()
