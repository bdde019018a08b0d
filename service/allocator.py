"""Memory that is free inside the process, given back to the system."""

import ctypes
from collections.abc import Callable


def trim_of_the_c_library() -> Callable[[int], int] | None:
    """glibc keeps what was freed between what is still used until it is asked; other libraries know no such call."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return trim


TRIM = trim_of_the_c_library()


def give_back() -> None:
    """After much was freed at once. Takes some milliseconds; other threads go on meanwhile."""
    if TRIM is not None:
        TRIM(0)
