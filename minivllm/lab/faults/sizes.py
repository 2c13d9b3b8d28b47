"""Patients whose blocks have the wrong size: far too large, or far too small."""

from minivllm import events as ev
from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.lab.faults.evidence import where
from minivllm.lab.faults.patient import Patient, Visit
from minivllm.lab.workloads import tokens_of


class HugeBlocks(Patient):
    """Blocks so large that every request wastes most of its last one."""

    complaint = "Peak memory is far above the estimate, and few requests run at a time."
    cause = "block_size is larger than the sequences: most of a request's only block stays empty."
    cure = "A block_size well below the typical length: 16 or 32."
    treatments = ("smaller-blocks",)
    instrument = "wasted ends"

    def build(self) -> Engine:
        """2,048 slots in blocks of 256, or of 16."""
        size = 16 if self.cured else 256
        return Engine(EngineConfig(block_size=size, num_blocks=2048 // size))

    def visits(self) -> list[Visit]:
        """Short questions."""
        return [Visit(1 + i // 4, tokens_of(((f"question {i}", 30 + 3 * i),)), 12) for i in range(24)]

    def evidence(self) -> list[int]:
        """Most of what is held will never be used."""
        return [use.tick for use in self.metrics.steps if use.internal > use.held / 2]


class TinyBlocks(Patient):
    """One token to a block: nothing is wasted, and every table is as long as its text."""

    complaint = "Memory is used to the last slot now, and throughput has fallen."
    cause = (
        "block_size 1: a block is taken, hashed and published for every token, and the kernel follows one entry each."
    )
    cure = "A block_size of 16 or more; the waste stays below half a block per request."
    treatments = ("larger-blocks",)
    instrument = "long tables"

    def build(self) -> Engine:
        """2,048 slots in blocks of one, or of 16."""
        size = 16 if self.cured else 1
        return Engine(EngineConfig(block_size=size, num_blocks=2048 // size))

    def visits(self) -> list[Visit]:
        """Prompts of ordinary length."""
        return [Visit(1 + 4 * i, tokens_of(((f"document {i}", 90 + 7 * i),)), 16) for i in range(12)]

    def evidence(self) -> list[int]:
        """A block is taken, for one token."""
        return where(self.recorder, lambda event: isinstance(event, ev.Take))
