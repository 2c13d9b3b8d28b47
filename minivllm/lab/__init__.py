"""What the notebooks use and the engine does not need: predictions, self-checking exercises, experiments.

The lab stands outside the engine: it reads events, snapshots and the public face, and nothing in the engine
imports it.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "NotAttempted": "grading",
    "Wrong": "grading",
    "check": "checking",
    "exercise": "grading",
    "expect": "breaking",
    "hint": "checking",
    "predict": "predictions",
    "progress": "checking",
    "require": "grading",
    "reveal": "predictions",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(f"minivllm.lab.{_HOME[name]}"), name)
