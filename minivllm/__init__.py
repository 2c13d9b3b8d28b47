"""A small, fast LLM inference engine that can be read: paged KV cache, prefix cache, continuous batching.

Names resolve lazily, so that `import minivllm.core` needs no torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "LLM": "minivllm.llm",
    "RequestOutput": "minivllm.output",
    "Engine": "minivllm.engine",
    "EngineConfig": "minivllm.config",
    "SamplingParams": "minivllm.request",
}
__all__ = ["LLM", "Engine", "EngineConfig", "RequestOutput", "SamplingParams"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'minivllm' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
