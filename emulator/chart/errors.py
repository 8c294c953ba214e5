"""What goes wrong with a chart."""

from __future__ import annotations


class ChartError(Exception):
    """A chart cannot be rendered here; the message says where and what is wrong."""

    def __init__(self, message: str, *, place: str = "") -> None:
        """Say what is wrong and, as soon as it is known, at which template and line."""
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place
