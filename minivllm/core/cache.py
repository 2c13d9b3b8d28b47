"""What the scheduler and the policies need of a KV manager: one protocol, which the paged and the contiguous one fit."""

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

    def capacity(self, request: Request) -> int: ...
    def match(self, request: Request) -> list[int]: ...
    def open(self, request: Request, spare: int = 0) -> Shortage | None: ...
    def grow(self, request: Request, end: int) -> Growth | None: ...
    def publish(self, request: Request) -> None: ...
    def fork(self, parent: Request, child: Request) -> bool: ...
    def close(self, request: Request) -> None: ...
    def reset(self) -> tuple[int, ...] | None: ...
