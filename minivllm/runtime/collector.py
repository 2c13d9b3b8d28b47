"""Python's garbage collector, made to look less often while an engine runs on a GPU.

After every 700 new containers it walks the newest ones, and a prompt is one list that leads to thousands of numbers: of 128
prompts that arrive at once it took a third of the host's time. What exists when the engine is ready is not walked at all.
"""

import gc

FREQUENT, RARE = gc.get_threshold()[0], 10_000
_calmed = 0


def calm() -> None:
    """An engine is ready: nothing made so far is garbage."""
    global _calmed
    _calmed += 1
    gc.freeze()
    gc.set_threshold(RARE, *gc.get_threshold()[1:])


def restore() -> None:
    """An engine was closed; after the last one everything is as it was."""
    global _calmed
    _calmed -= 1
    if not _calmed:
        gc.unfreeze()
        gc.set_threshold(FREQUENT, *gc.get_threshold()[1:])
