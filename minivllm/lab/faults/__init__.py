"""Sick engines: each patient is a real engine with one fault, and traffic that brings it out.

    with faults.admit("leak") as patient:
        patient.run()
        patient.examine()

Faults come in through the parts that an engine takes (policy, eviction, kernels), through its settings, or by
wrapping an object of that one engine; no other engine ever notices. `admit(name, cured=True)` is the same without
the fault.
"""

from typing import Any

from minivllm.lab.faults.bookkeeping import BorrowedBlock, Leak, WholePromptHit
from minivllm.lab.faults.numbers import HalfPrecisionSum, StaleTable, UnmaskedTail
from minivllm.lab.faults.patient import INSTRUMENTS, Patient, Visit
from minivllm.lab.faults.sizes import HugeBlocks, TinyBlocks
from minivllm.lab.faults.traffic import DynamicPrompt, PingPong, SmallPool, Starvation

__all__ = ["INSTRUMENTS", "PATIENTS", "Patient", "Visit", "admit"]

PATIENTS: dict[str, type[Patient]] = {
    "dynamic-prompt": DynamicPrompt,
    "small-pool": SmallPool,
    "leak": Leak,
    "unmasked-tail": UnmaskedTail,
    "half-precision-sum": HalfPrecisionSum,
    "borrowed-block": BorrowedBlock,
    "stale-table": StaleTable,
    "ping-pong": PingPong,
    "whole-prompt-hit": WholePromptHit,
    "starvation": Starvation,
    "huge-blocks": HugeBlocks,
    "tiny-blocks": TinyBlocks,
}


def admit(name: str, *, cured: bool = False, **options: Any) -> Patient:
    """The patient of that name. Raises `ValueError` for an unknown one."""
    if name not in PATIENTS:
        raise ValueError(f"patient is {name!r}; there are {', '.join(PATIENTS)}")
    return PATIENTS[name](cured=cured, **options)
