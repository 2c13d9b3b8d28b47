"""Break it on purpose, and see the message: `with expect(ValueError, match="block_size"):`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from minivllm.lab.grading import in_short


@contextmanager
def expect(error: type[BaseException] | tuple[type[BaseException], ...], match: str = "") -> Iterator[None]:
    """Break it on purpose: the block must raise `error`, its message matching the regular expression `match`.

    Prints one line with the message. Raises AssertionError when nothing was raised or the message differs;
    an error of another kind passes through.
    """
    names = " or ".join(one.__name__ for one in (error if isinstance(error, tuple) else (error,)))
    try:
        yield
    except error as caught:
        if not re.search(match, str(caught)):
            raise AssertionError(f"expected a message like {match!r}, got {in_short(caught)}") from caught
        print(f"as expected, {in_short(caught)}")
        caught.__traceback__ = None  # a kept traceback would keep the engine's memory
        return
    raise AssertionError(f"expected {names}, and nothing was raised")
