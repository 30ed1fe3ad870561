"""Runtime-scoped resources: made once per key, guarded while in use, never evicted under a user's feet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Generic, TypeVar

from ._errors import RuntimeStateError, ValidationError

T = TypeVar("T")


class _Entry:
    """One key's value and the lock that serialises its users; `init` runs under this lock only."""

    __slots__ = ("is_ready", "lock", "owner", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None
        self.is_ready = False
        self.value: object = None


class ResourceGuard(Generic[T]):
    """Exclusive access to one resource; leave the `with` block, or call `release`, to let others in.

    Example:
        >>> import tenferro_interop as tfi
        >>> with tfi.session("cpu") as s, s.resource("counter", lambda: [0]) as counter:
        ...     counter[0] += 1
    """

    _entry: _Entry | None = None

    def __init__(self) -> None:
        raise RuntimeStateError(
            "ResourceGuard must come from `Session.resource`, got a direct construction", op="resource"
        )

    @classmethod
    def _hold(cls, entry: _Entry) -> ResourceGuard[T]:
        self = object.__new__(cls)
        self._entry = entry
        return self

    @property
    def value(self) -> T:
        """The resource.

        Raises `RuntimeStateError` once the guard has been released.
        """
        if self._entry is None:
            raise RuntimeStateError("resource must be used inside its guard, got a released guard", op="resource")
        return self._entry.value  # type: ignore[return-value]  # the entry is made by an init that returns T

    def release(self) -> None:
        """Let others in; more calls do nothing."""
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.owner = None
            entry.lock.release()

    def __enter__(self) -> T:
        """Return the resource."""
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release."""
        self.release()

    def __del__(self) -> None:
        self.release()


class ResourceCache:
    """All resources of one runtime, by key."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self.hits = 0
        self.misses = 0

    def acquire(self, key: Hashable, init: Callable[[], T]) -> ResourceGuard[T]:
        """Return a guard over the key's resource, making it first where needed.

        A failing `init` raises its own error and stores nothing: the next call tries again.  Asking again for a key
        whose guard this thread holds raises `RuntimeStateError` where a lock would wait for ever.
        """
        try:
            hash(key)
        except TypeError:
            raise ValidationError(
                f"key must be hashable, got {type(key).__name__}", op="resource", argument="key"
            ) from None
        with self._guard:
            entry = self._entries.setdefault(key, _Entry())
        if entry.owner == threading.get_ident():
            raise RuntimeStateError(
                f"resource {key!r} must not be asked for again while this thread holds it. Use the guard you have",
                op="resource",
                argument="key",
            )
        entry.lock.acquire()
        entry.owner = threading.get_ident()
        try:
            self._make(entry, init)
        except BaseException:
            entry.owner = None
            entry.lock.release()
            raise
        return ResourceGuard._hold(entry)

    def _make(self, entry: _Entry, init: Callable[[], T]) -> None:
        if entry.is_ready:
            self.hits += 1
            return
        self.misses += 1
        entry.value = init()
        entry.is_ready = True
