"""Which of several processes this one is.

>>> World().size
1
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
