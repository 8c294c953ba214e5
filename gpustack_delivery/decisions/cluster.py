"""What a cluster of a version can do.

Rule: AR-RES-04.
"""

from __future__ import annotations

import re
from typing import Final

_FIRST_WITH_IMAGES: Final = (1, 35)
_LEADING_DIGITS: Final = re.compile(r"[0-9]{1,6}")


def mounts_images(version: object) -> bool:
    """Say whether a cluster mounts images as volumes.

    Args:
        version: the decoded answer of `/version`; its minor may carry a suffix, such as `35+`.
    """
    if not isinstance(version, dict):
        return False
    numbers = [_LEADING_DIGITS.match(str(version.get(part, ""))) for part in ("major", "minor")]
    found = tuple(int(number[0]) for number in numbers if number)
    return len(found) == 2 and found >= _FIRST_WITH_IMAGES
