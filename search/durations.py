"""Times as people read them."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Seconds as hours and minutes, minutes and seconds, or seconds."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
