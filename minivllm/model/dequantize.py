"""From quantised blocks to float32.

A quantised tensor is cut into blocks of 32 weights (256 in the "K" formats) that share a scale, and in some
formats an offset: weight = scale * integer + offset. Each function below takes blocks as a structured array
and returns `[blocks, block]`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Array = np.ndarray


def _nibbles(packed: Array) -> Array:
    """`[n, 16]` bytes -> `[n, 32]` integers: first the low halves of all bytes, then the high halves."""
    return np.concatenate((packed & 15, packed >> 4), axis=-1)


def _fifth_bit(packed: Array) -> Array:
    """`[n, 4]` bytes -> `[n, 32]`: the bit that Q5 formats keep apart, already worth 16."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _scale(integers: Array, scale: Array, offset: Array | None = None) -> Array:
    weights = integers.astype(np.float32)
    weights *= scale.astype(np.float32)[:, None]
    if offset is not None:
        weights += offset.astype(np.float32)[:, None]
    return weights


def _bf16(blocks: Array) -> Array:
    return (blocks["x"].astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Array) -> Array:
    return _scale(_nibbles(blocks["q"]).view(np.int8) - np.int8(8), blocks["d"])


def _q4_1(blocks: Array) -> Array:
    return _scale(_nibbles(blocks["q"]), blocks["d"], blocks["m"])


def _q5_0(blocks: Array) -> Array:
    return _scale((_nibbles(blocks["q"]) | _fifth_bit(blocks["h"])).view(np.int8) - np.int8(16), blocks["d"])


def _q5_1(blocks: Array) -> Array:
    return _scale(_nibbles(blocks["q"]) | _fifth_bit(blocks["h"]), blocks["d"], blocks["m"])


def _k_scales(packed: Array) -> tuple[Array, Array]:
    """`[n, 12]` bytes -> eight 6-bit scales and eight 6-bit offsets, `[n, 8]` each (Q4_K and Q5_K)."""
    low, mid, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 6) << 4)), axis=-1)
    offsets = np.concatenate((mid & 63, (high >> 4) | ((mid >> 6) << 4)), axis=-1)
    return scales, offsets


def _k_weights(integers: Array, blocks: Array) -> Array:
    """`[n, 8, 32]` integers with a scale and an offset for each run of 32."""
    scales, offsets = _k_scales(blocks["s"])
    scale = blocks["d"].astype(np.float32)[:, None] * scales.astype(np.float32)  # [n, 8]
    offset = blocks["m"].astype(np.float32)[:, None] * offsets.astype(np.float32)
    return (scale[:, :, None] * integers.astype(np.float32) - offset[:, :, None]).reshape(-1, 256)


def _runs(packed: Array) -> Array:
    """`[n, 128]` bytes -> `[n, 8, 32]`: 32 bytes hold a run in their low halves, the next in the high ones."""
    quads = packed.reshape(-1, 4, 1, 32)
    return np.concatenate((quads & 15, quads >> 4), axis=2).reshape(-1, 8, 32)


def _q4_k(blocks: Array) -> Array:
    return _k_weights(_runs(blocks["q"]), blocks)


def _q5_k(blocks: Array) -> Array:
    shifts = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    fifth = ((blocks["h"][:, None, :] >> shifts) & 1) << 4  # [n, 8, 32]
    return _k_weights(_runs(blocks["q"]) | fifth, blocks)


def _q6_k(blocks: Array) -> Array:
    packed = blocks["q"].reshape(-1, 2, 1, 64)
    low = np.concatenate((packed & 15, packed >> 4), axis=2).reshape(-1, 8, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    high = ((blocks["h"].reshape(-1, 2, 1, 32) >> shifts) & 3).reshape(-1, 8, 32) << 4
    integers = (low | high).view(np.int8).reshape(-1, 16, 16) - np.int8(32)
    scale = blocks["d"].astype(np.float32)[:, None] * blocks["s"].astype(np.float32)  # [n, 16]
    return (scale[:, :, None] * integers.astype(np.float32)).reshape(-1, 256)


class Format(NamedTuple):
    """How one ggml type is laid out: `bytes` for every `block` weights."""

    name: str
    block: int
    layout: np.dtype
    decode: Callable[[Array], Array]

    @property
    def bytes(self) -> int:
        """Size of a block."""
        return int(self.layout.itemsize)


def _format(name: str, block: int, decode: Callable[[Array], Array], **fields: str) -> Format:
    return Format(name, block, np.dtype(list(fields.items())), decode)


FORMATS = {
    0: _format("F32", 1, lambda blocks: blocks["x"].astype(np.float32), x="<f4"),
    1: _format("F16", 1, lambda blocks: blocks["x"].astype(np.float32), x="<f2"),
    2: _format("Q4_0", 32, _q4_0, d="<f2", q="16u1"),
    3: _format("Q4_1", 32, _q4_1, d="<f2", m="<f2", q="16u1"),
    6: _format("Q5_0", 32, _q5_0, d="<f2", h="4u1", q="16u1"),
    7: _format("Q5_1", 32, _q5_1, d="<f2", m="<f2", h="4u1", q="16u1"),
    8: _format("Q8_0", 32, lambda blocks: _scale(blocks["q"], blocks["d"]), d="<f2", q="32i1"),
    12: _format("Q4_K", 256, _q4_k, d="<f2", m="<f2", s="12u1", q="128u1"),
    13: _format("Q5_K", 256, _q5_k, d="<f2", m="<f2", s="12u1", h="32u1", q="128u1"),
    14: _format("Q6_K", 256, _q6_k, q="128u1", h="64u1", s="16i1", d="<f2"),
    30: _format("BF16", 1, _bf16, x="<u2"),
}


def dequantize(buffer: mmap.mmap | bytes, offset: int, count: int, kind: int) -> Array:
    """`count` float32 weights of ggml type `kind` (a key of FORMATS), whose blocks begin at byte `offset`."""
    form = FORMATS[kind]
    blocks = np.frombuffer(buffer, form.layout, count // form.block, offset)
    return form.decode(blocks).reshape(-1)
