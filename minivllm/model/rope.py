"""Rotary position embedding: how fast each pair of dimensions turns, and the table of its cosines and sines.

A pair i of a head turns by `inverse_frequency[i]` radians per position (Su et al. 2021). Models stretched to
longer contexts slow the turning down by a rule, the `rope_type`; reading such a model without its rule goes
unnoticed in short prompts and ruins long ones, so a rule that we do not know is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minivllm.kernels.batch import RopeTable

REQUIRED = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True)
class RopeSpec:
    """The rule and its numbers; which fields matter depends on `rope_type`."""

    theta: float
    rope_type: str = "default"
    factor: float = 1.0
    original_max_position: int = 0  # context length before stretching (llama3, yarn)
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    truncate: bool = True  # yarn: round the borders of the ramp to whole dimensions
    attention_factor: float = 1.0  # yarn: cosines and sines are multiplied by it
    freq_factors: tuple[float, ...] = ()  # per-pair divisors, as GGUF files store llama3's rule

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], default_theta: float) -> RopeSpec:
        """From a config: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (before).

        Raises ValueError for an unknown rope_type, for rotating a part of the head only, and for missing
        numbers.
        """
        given = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
        theta = given.get("rope_theta") or config.get("rope_theta") or default_theta
        rope_type = given.get("rope_type") or given.get("type") or "default"
        if rope_type not in REQUIRED:
            raise ValueError(f"rope_type {rope_type!r} is not supported; supported: {', '.join(REQUIRED)}")
        partial = given.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
        if partial != 1.0:
            raise ValueError(f"partial_rotary_factor {partial} is not supported: the whole head must rotate")
        freq_factors = tuple(given.get("freq_factors") or ())
        if rope_type == "default":
            return cls(float(theta), freq_factors=freq_factors)
        original = "original_max_position_embeddings"
        given[original] = config.get(original) or given.get(original) or config.get("max_position_embeddings")
        missing = [key for key in REQUIRED[rope_type] if given.get(key) is None]
        if missing:
            raise ValueError(f"rope_type {rope_type!r} needs {', '.join(missing)}, and the config has only {given}")
        return cls(
            theta=float(theta),
            rope_type=rope_type,
            factor=float(given["factor"]),
            original_max_position=int(given[original] or 0),
            low_freq_factor=float(given.get("low_freq_factor") or 1.0),
            high_freq_factor=float(given.get("high_freq_factor") or 4.0),
            beta_fast=float(given.get("beta_fast") or 32.0),
            beta_slow=float(given.get("beta_slow") or 1.0),
            truncate=bool(given.get("truncate", True)),
            attention_factor=_yarn_attention_factor(given) if rope_type == "yarn" else 1.0,
        )


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> Tensor:
    """Radians per position of each pair of dimensions: `[head_dim / 2]` float32, fastest first."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / rope.theta**pairs
    if rope.freq_factors:
        return plain / torch.tensor(rope.freq_factors)
    if rope.rope_type == "linear":  # positions squeezed by `factor` (Chen et al. 2023)
        return plain / rope.factor
    if rope.rope_type == "llama3":
        return _llama3(rope, plain)
    if rope.rope_type == "yarn":
        return _yarn(rope, plain)
    return plain


def rope_table(rope: RopeSpec, head_dim: int, max_position: int, device: torch.device | str = "cpu") -> RopeTable:
    """Cosines and sines of positions 0 to max_position - 1, on `device`."""
    positions = torch.arange(max_position, dtype=torch.float32)
    angles = torch.outer(positions, inverse_frequencies(rope, head_dim))  # [max_position, head_dim / 2]
    table = torch.cat((angles.cos(), angles.sin()), dim=-1) * rope.attention_factor
    return RopeTable(table.to(device))


def _llama3(rope: RopeSpec, plain: Tensor) -> Tensor:
    """Slow pairs are divided by `factor`, fast ones kept, and those between blended (Llama 3.1)."""
    turns = rope.original_max_position * plain / (2 * math.pi)  # whole turns within the original context
    low, high = rope.low_freq_factor, rope.high_freq_factor
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * plain / rope.factor + blend * plain


def _yarn(rope: RopeSpec, plain: Tensor) -> Tensor:
    """The same idea with a ramp that is linear in the dimension (Peng et al. 2023, section 3.2)."""
    head_dim = 2 * len(plain)

    def dimension(turns: float) -> float:
        """The pair that makes `turns` whole turns within the original context."""
        return head_dim * math.log(rope.original_max_position / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = ((torch.arange(len(plain)) - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / rope.factor * ramp + plain * (1 - ramp)


def _yarn_attention_factor(given: Mapping[str, Any]) -> float:
    """The magnitude correction: as the config says, else `0.1 ln(factor) + 1` (Peng et al. 2023, 3.4)."""

    def magnitude(scale: float) -> float:
        return 0.1 * scale * math.log(given["factor"]) + 1.0 if given["factor"] > 1 else 1.0

    if given.get("attention_factor") is not None:
        return float(given["attention_factor"])
    if given.get("mscale") and given.get("mscale_all_dim"):
        return magnitude(given["mscale"]) / magnitude(given["mscale_all_dim"])
    return magnitude(1.0)
