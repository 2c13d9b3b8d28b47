"""One step as the kernels see it: ragged rows of tokens, and where each token's keys and values live.

A step feeds T tokens that belong to R rows (requests), one row after another without padding between them. A
decode is a row of one token, a prefill chunk a row of many, and nothing else tells them apart.

The key/value pool is one tensor `kv: [layers, 2, num_blocks, block_size, kv_heads, head_dim]`; `kv[l, 0]`
holds the keys and `kv[l, 1]` the values of layer `l`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StepBatch:
    """Everything the kernels must know of one step (all tensors on the model's device).

    A padding row (only in captured graphs) has `context_lens[r] == 0`; its tokens have slot -1, write
    nothing, and attend to nothing. Entries of `block_tables` past a row's context are arbitrary and never
    followed.
    """

    positions: Tensor  # [T] int32: absolute position of each fed token
    slots: Tensor  # [T] int64: block * block_size + offset where the token's K/V go; -1 = nowhere
    query_starts: Tensor  # [R + 1] int32: row r feeds tokens query_starts[r] : query_starts[r + 1]
    context_lens: Tensor  # [R] int32: tokens in the row's context after this step; 0 = padding row
    block_tables: Tensor  # [R, W] int32: logical block -> physical block
    max_query_len: int  # longest row; on a graph an upper bound
    max_context_len: int  # longest context; on a graph an upper bound
    logit_rows: Tensor | None  # [S] int64: which of the T tokens want logits; None: all
    min_query_len: int = 1  # shortest row, or less: from 2 on there is no decode among them


@dataclass(frozen=True)
class RopeTable:
    """Cosines and sines of rotary positions, computed once per model (Su et al. 2021).

    `cos_sin: [max_position, head_dim]` float32, first half cosines, second half sines. Dimension i of a head
    is paired with dimension i + head_dim / 2 (the "rotate half" pairing of GPT-NeoX and Hugging Face).
    """

    cos_sin: Tensor


@dataclass(frozen=True)
class SamplingTensors:
    """How to choose a token for each of S rows; see `reference.sample` for the rule."""

    temperature: Tensor  # [S] float32; 0 = greedy
    top_k: Tensor  # [S] int32; 0 or -1 = off
    top_p: Tensor  # [S] float32; 1 = off
    min_p: Tensor  # [S] float32; 0 = off
    seed: Tensor  # [S] int64
    position: Tensor  # [S] int64: position the sampled token will have
    all_greedy: bool  # every temperature is 0
    plain: bool  # no row uses top_k, top_p or min_p
    vocab_size: int | None = None  # ids from here on are padding of the logits and never drawn; None = no padding

    @classmethod
    def greedy(cls, rows: int, device: torch.device | str = "cpu") -> SamplingTensors:
        """Argmax for `rows` rows."""
        floats = torch.zeros(rows, dtype=torch.float32, device=device)
        longs = torch.zeros(rows, dtype=torch.int64, device=device)
        return cls(floats, longs.int(), floats + 1, floats, longs, longs, all_greedy=True, plain=True)
