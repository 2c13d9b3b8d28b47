"""Every operation in plain torch: the oracle for the kernels, and the path a laptop takes.

Tensors may be float32, bfloat16 or float16; sums are taken in float32. Decodes of a batch are one computation
over their gathered pages, a prefill is one per request, and a slot that this batch's requests have not
written is never read: an index past a row's context is turned to the row's first token, and masked.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from minivllm.kernels.batch import RopeTable, SamplingTensors, StepBatch


class ReferenceOps:
    """`Ops` in plain torch, on any device."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`x @ weight.T + bias`."""
        product = _few_rows(x, weight) if _is_few(x) else F.linear(x, weight)
        return product if bias is None else product + bias

    def linear_silu_mul(self, x: Tensor, gate_up: Tensor) -> Tensor:
        """SwiGLU; the sigmoid and the product are taken in float32."""
        gate, up = self.linear(x, gate_up).float().chunk(2, dim=-1)  # [T, I] each
        return (F.silu(gate) * up).to(x.dtype)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`x / rms(x) * weight`, in float32."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (wide * scale * weight.float()).to(x.dtype)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """The residual stream after `x`, normed and as it is."""
        residual = x + residual
        return self.rms_norm(residual, weight, eps), residual

    def attention(
        self,
        qkv: Tensor,
        kv_layer: Tensor,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        rope: RopeTable | None,
        batch: StepBatch,
    ) -> Tensor:
        """Norm and rotate q and k, write k and v to their pages, attend."""
        kv_heads, head_dim = kv_layer.shape[-2:]
        heads = qkv.unflatten(-1, (-1, head_dim))  # [T, Hq + 2 * Hkv, D]
        qk, v = heads[:, :-kv_heads], heads[:, -kv_heads:]
        if q_norm is not None and k_norm is not None:
            q, k = qk[:, :-kv_heads], qk[:, -kv_heads:]
            qk = torch.cat((self.rms_norm(q, q_norm, eps), self.rms_norm(k, k_norm, eps)), dim=1)
        if rope is not None:
            qk = rotate(qk, rope.cos_sin[batch.positions].unsqueeze(1))
        store(kv_layer, qk[:, -kv_heads:], v, batch.slots)
        return attend(qk[:, :-kv_heads], kv_layer, batch).flatten(1)

    def sample(self, logits: Tensor, params: SamplingTensors) -> Tensor:
        """One token per row."""
        return sample(logits, params)


def _is_few(x: Tensor) -> bool:
    return len(x) <= 8 and x.dtype == torch.float32 and x.device.type == "cpu"


def _few_rows(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight.T` for a few rows on a CPU, where reading the weights is all the work.

    Math libraries stream a left operand 2 to 3 times faster than a right one, if there are at least two
    columns to multiply it with; so one row is doubled, and the product taken the other way round.
    """
    at_least_two = torch.cat((x, x)) if len(x) == 1 else x.contiguous()
    return (weight @ at_least_two.t()).t()[: len(x)].contiguous()


def rotate(x: Tensor, cos_sin: Tensor) -> Tensor:
    """Rotary positions: `x: [T, H, D]`, `cos_sin: [T, 1, D]` float32 (cosines, then sines) -> `[T, H, D]`."""
    cos, sin = cos_sin.chunk(2, dim=-1)  # [T, 1, D / 2]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def store(kv_layer: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
    """Write `k, v: [T, Hkv, D]` to their slots of `kv_layer`; slot -1 writes nothing."""
    keys, values = kv_layer.flatten(1, 2)  # [num_blocks * block_size, Hkv, D]
    real = slots >= 0
    if not bool(real.all()):
        k, v, slots = k[real], v[real], slots[real]
    keys.index_copy_(0, slots, k)
    values.index_copy_(0, slots, v)


def attend(q: Tensor, kv_layer: Tensor, batch: StepBatch) -> Tensor:
    """Causal attention of `q: [T, Hq, D]` through the block tables -> `[T, Hq, D]`."""
    starts, contexts = batch.query_starts.tolist(), batch.context_lens.tolist()
    if len(contexts) == len(q) and min(contexts) > 0:  # decodes only
        return decode_rows(q, kv_layer, batch.block_tables, batch.context_lens)
    out = torch.zeros_like(q)
    live = [r for r, context in enumerate(contexts) if context > 0]  # the others are padding: they attend to nothing
    decodes = [r for r in live if starts[r + 1] - starts[r] == 1]
    if decodes:
        rows = torch.tensor(decodes, device=q.device)
        tokens = batch.query_starts[rows].long()
        out[tokens] = decode_rows(q[tokens], kv_layer, batch.block_tables[rows], batch.context_lens[rows])
    for r in sorted(set(live) - set(decodes)):
        part = slice(starts[r], starts[r + 1])
        out[part] = prefill_row(q[part], kv_layer, batch.block_tables[r], contexts[r])
    return out


def decode_rows(q: Tensor, kv_layer: Tensor, block_tables: Tensor, context_lens: Tensor) -> Tensor:
    """One new token per row: `q: [R, Hq, D]`, `block_tables: [R, W]`, `context_lens: [R]` -> `[R, Hq, D]`.

    The query heads that share a key head stand side by side as if they were several queries of it.
    """
    length = int(context_lens.max())
    position = torch.arange(length, device=q.device)
    visible = position < context_lens.unsqueeze(1)  # [R, L]
    k, v = gather(kv_layer, block_tables, position * visible)  # [R, Hkv, L, D]
    grouped = q.unflatten(1, (k.shape[1], -1))  # [R, Hkv, G, D]
    out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=visible[:, None, None])
    return out.flatten(1, 2)


def prefill_row(q: Tensor, kv_layer: Tensor, block_table: Tensor, context: int) -> Tensor:
    """The last `n` tokens of one request: `q: [n, Hq, D]`, `block_table: [W]` -> `[n, Hq, D]`."""
    position = torch.arange(context, device=q.device)
    k, v = gather(kv_layer, block_table[None], position[None])  # [1, Hkv, context, D]
    queries = q.transpose(0, 1)[None]  # [1, Hq, n, D]
    fresh = len(q) == context
    mask = None if fresh else position <= position[context - len(q) :, None]  # [n, context]
    out = F.scaled_dot_product_attention(queries, k, v, attn_mask=mask, is_causal=fresh, enable_gqa=True)
    return out[0].transpose(0, 1)


def gather(kv_layer: Tensor, block_tables: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values at logical `positions: [R, L]` of each row -> two `[R, Hkv, L, D]`."""
    block_size = kv_layer.shape[2]
    blocks = block_tables.long().gather(1, positions // block_size)
    slots = blocks * block_size + positions % block_size  # [R, L] int64
    keys, values = (pool.index_select(0, slots.flatten()) for pool in kv_layer.flatten(1, 2))  # [R * L, Hkv, D]
    return keys.unflatten(0, slots.shape).transpose(1, 2), values.unflatten(0, slots.shape).transpose(1, 2)


def sample(logits: Tensor, params: SamplingTensors) -> Tensor:
    """Choose a token per row by inverting the cumulative distribution: `logits: [S, V]` -> `[S]` int64.

    Each row has one uniform number u, fixed by its seed and the position of the token, so that neither the
    batch nor its neighbours change a request's text. The token is the first id whose cumulative probability
    exceeds u. Temperature 0 takes the first of the largest logits.
    """
    logits = logits[:, : params.vocab_size].float()
    best = logits.argmax(-1)
    if params.all_greedy:
        return best
    greedy = params.temperature == 0
    scaled = logits / torch.where(greedy, 1.0, params.temperature).unsqueeze(1)
    if not params.plain:
        scaled = scaled.masked_fill(~kept(scaled, params), -torch.inf)
    cumulative = scaled.softmax(-1).double().cumsum(-1)  # [S, V]
    u = uniform(params.seed, params.position).unsqueeze(1) * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, u, right=True).squeeze(1)
    return torch.where(greedy, best, drawn)


def kept(logits: Tensor, params: SamplingTensors) -> Tensor:
    """Which tokens survive top_k, then top_p, then min_p: `logits: [S, V]` float32 -> `[S, V]` bool.

    top_p keeps the smallest set of most probable tokens whose mass reaches top_p: a token stays while the
    mass before it is smaller than top_p, which is true of the first one however small top_p is (Holtzman et
    al. 2020).
    """
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    top_k = params.top_k.unsqueeze(1)
    keep = (top_k <= 0) | (rank < top_k)
    probs = ordered.masked_fill(~keep, -torch.inf).softmax(-1)
    before = probs.cumsum(-1) - probs
    top_p = params.top_p.unsqueeze(1)
    keep &= (top_p >= 1) | (before < top_p) | (rank == 0)
    keep &= probs >= params.min_p.unsqueeze(1) * probs[:, :1]
    return torch.zeros_like(keep).scatter(1, ids, keep)


def uniform(seed: Tensor, position: Tensor) -> Tensor:
    """The random number of a token: `seed, position: [S]` int64 -> `[S]` float64, strictly between 0 and 1.

    A counter-based generator: no state to carry, only a hash (SplitMix64's finaliser, Steele et al. 2014) of
    its two keys.
    """
    seeds, positions = (t.cpu().numpy().astype(np.uint64) for t in (seed, position))
    with np.errstate(over="ignore"):
        z = seeds * np.uint64(0x9E3779B97F4A7C15) + positions * np.uint64(0xD1B54A32D192ED03)
        z = z + np.uint64(0x2545F4914F6CDD1D)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    bits = (z >> np.uint64(40)).astype(np.float64)
    return torch.from_numpy((bits + 0.5) / 2**24).to(seed.device)
