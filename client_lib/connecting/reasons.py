"""Why attempts have failed, and whether every place has denied us (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from client_lib.connecting.places import Place
from client_lib.urls.url import Endpoint


class Reasons:
    """The last one of each address; may be read from any thread."""

    def __init__(self) -> None:
        self._texts: dict[Endpoint, str] = {}
        self._denied: dict[Place, bool] = {}
        """Of those that have answered, or cannot be reached."""

    def __bool__(self) -> bool:
        return bool(self._texts)

    def __str__(self) -> str:
        """`; last: ADDRESS: reason; ...`, or empty."""
        texts = "; ".join(f"{address}: {reason}" for address, reason in list(self._texts.items()))
        return f"; last: {texts}" if texts else ""

    def forget(self) -> None:
        """The texts; a denial counts until the place says something else."""
        self._texts.clear()

    def failed(self, place: Place, reason: str, denied: bool | None = False) -> None:
        """`denied` None: it may accept later."""
        self._texts[place.address] = reason
        self._denied.pop(place, None)
        if denied is not None:
            self._denied[place] = denied

    def all_denied(self, places: Iterable[Place]) -> bool:
        """Every place has denied us or could not be reached, and at least one has denied."""
        return any(self._denied.values()) and all(place in self._denied for place in places)
