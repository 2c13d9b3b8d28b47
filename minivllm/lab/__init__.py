"""What the notebooks use and the engine does not need: predictions, self-checking exercises, experiments.

The lab stands outside the engine: it reads events, snapshots and the public face, and nothing in the engine
imports it.
"""

from minivllm.lab.breaking import expect
from minivllm.lab.checking import check, hint, progress
from minivllm.lab.grading import NotAttempted, Wrong, exercise, require
from minivllm.lab.predictions import predict, reveal

__all__ = [
    "NotAttempted",
    "Wrong",
    "check",
    "exercise",
    "expect",
    "hint",
    "predict",
    "progress",
    "require",
    "reveal",
]
