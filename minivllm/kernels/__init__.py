"""The arithmetic of one step: tensors in, tensors out.

Nothing here knows what a request is. A step arrives as a `StepBatch` (`batch.py`), and a set of operations
(`ops.py`) turns it into logits and tokens: `reference.py` in plain torch, which is both the CPU path and the
oracle, or the Triton kernels.
"""
