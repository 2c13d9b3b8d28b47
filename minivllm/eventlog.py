"""The verbose log: every event in words, through Python's own `logging`, under the name `minivllm.events`.

logging.basicConfig(level=logging.INFO)
stop = log_events(engine)
"""

import logging
from collections.abc import Callable

from minivllm import events as ev
from minivllm import narrate
from minivllm.engine import Engine

logger = logging.getLogger("minivllm.events")


def log_events(engine: Engine, level: int = logging.INFO) -> Callable[[], None]:
    """Log what the engine does from now on, one line an event; returns the function that stops it."""

    def write(event: ev.Event) -> None:
        if not isinstance(event, (ev.Start, ev.End)):
            logger.log(level, "tick %d %s: %s", engine.tick, event.phase, narrate.line(event))

    return engine.bus.subscribe(write)
