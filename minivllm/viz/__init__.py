"""Pictures of a running engine: interactive in a notebook, and each with a static twin that needs no browser."""

from importlib import import_module
from typing import Any

_HOME = {
    "EngineView": "minivllm.viz.engine_view",
    "FleetView": "minivllm.viz.fleet_view",
    "HashChains": "minivllm.viz.hash_chains",
    "MemoryStrip": "minivllm.viz.memory_strip",
    "QueueView": "minivllm.viz.queue_view",
    "RanksView": "minivllm.viz.ranks_view",
    "Roofline": "minivllm.viz.roofline",
}
__all__ = ["EngineView", "FleetView", "HashChains", "MemoryStrip", "QueueView", "RanksView", "Roofline"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'minivllm.viz' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
