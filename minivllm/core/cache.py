"""What the scheduler and the policies need of a KV manager: a protocol that the paged and the contiguous one fit."""

from typing import NamedTuple, Protocol

from minivllm.request import Request


class Shortage(NamedTuple):
    """Why a request could not start: it needs `need` blocks and `available` could be had.

    `reason`: memory, hole (enough is free, but not in one piece), seats, budget, or preempted.
    """

    need: int
    available: int
    reason: str = "memory"


class Growth(NamedTuple):
    """What a table gained: `(logical index, block)` pairs, and whole-block copies `(source, block)` to make first."""

    blocks: list[tuple[int, int]]
    copies: list[tuple[int, int]]


class Cache(Protocol):
    """Owner of all block tables. `open` and `grow` take what they need or change nothing."""

    block_size: int
    prefix_caching: bool

    def capacity(self, request: Request) -> int:
        """The most tokens of K/V the request could ever hold."""

    def match(self, request: Request) -> list[int]:
        """Cached blocks the request would start with."""

    def open(self, request: Request, spare: int = 0) -> Shortage | None:
        """Blocks for all known tokens, leaving `spare` others; or what is missing."""

    def grow(self, request: Request, end: int) -> Growth | None:
        """Make the positions before `end` writable; None if there is no room."""

    def publish(self, request: Request) -> None:
        """Make full, computed blocks findable."""

    def fork(self, parent: Request, child: Request) -> bool:
        """Share the parent's blocks with the child; False if that is not possible."""

    def close(self, request: Request) -> None:
        """Give all blocks back."""

    def reset(self) -> tuple[int, ...] | None:
        """Forget all cached prefixes, and say which blocks held them; None while a block is in use."""
