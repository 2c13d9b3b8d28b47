"""Tensor parallelism as a picture: which heads each rank holds, what a token costs it, and where all ranks must meet.

Every number of ranks is computed once here; the browser chooses between them.
"""

from typing import Any

import traitlets

from minivllm import allowed
from minivllm.lab.ranks import kv_heads_per_rank
from minivllm.narrate import count, number
from minivllm.viz import bundle, static
from minivllm.viz.playable import Playable
from minivllm.viz.ranks_card import as_svg, as_text
from minivllm.viz.roofline_model import amount

CHOICES = (1, 2, 4, 8, 16)


class RanksView(Playable):
    """A model cut by heads over 1, 2, 4, 8 or 16 GPUs: as many of these as its heads allow. `show()` displays it.

    `hidden`: numbers in a hidden state; `weights`: bytes of the whole model; `memory`: bytes of each GPU for weights and
    K/V together. Activations, and the weights of copied heads, are left out. `ranks` is the number that is shown.
    Raises `ValueError` for a size that is not positive, and for a number of ranks that the heads do not allow.
    """

    _esm = bundle.module("ranks_view")
    _css = bundle.css("base", "ranks_view")

    picture = traitlets.Dict().tag(sync=True)
    ranks = traitlets.Int().tag(sync=True)

    def __init__(
        self, *, layers: int, q_heads: int, kv_heads: int, head_dim: int, hidden: int, weights: float, memory: float,
        dtype_bytes: int = 2, ranks: int = 1, title: str = "",
    ) -> None:  # fmt: skip
        sizes = {"layers": layers, "q_heads": q_heads, "kv_heads": kv_heads, "head_dim": head_dim, "hidden": hidden,
                 "dtype_bytes": dtype_bytes}  # fmt: skip
        self._sizes = {name: allowed.whole(name, size, 1) for name, size in sizes.items()}
        if q_heads % kv_heads:
            raise ValueError(f"q_heads is {q_heads}; allowed: a multiple of the {kv_heads} KV heads")
        self._weights = allowed.real("weights", weights, 0, allowed.FLOAT_MAX, "a number above 0", above=True)
        self._memory = allowed.real("memory", memory, 0, allowed.FLOAT_MAX, "a number above 0", above=True)
        self._cuts = {n: self._cut(n) for n in CHOICES if self._possible(n)}
        picture = {"layers": layers, "memory": self._memory, "cuts": list(self._cuts.values())}
        super().__init__(title=title or "ranks", picture=picture, ranks=ranks)

    def __repr__(self) -> str:
        return f"RanksView({count(self.ranks, 'rank')}, {self.kv_bytes:,} bytes per token on each)"

    # -- what it shows -------------------------------------------------------------------------------------------

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V per token on each rank."""
        return int(self._cuts[self.ranks]["kv_bytes"])

    @property
    def pool_tokens(self) -> int:
        """Tokens of K and V that fit beside the weights; the same on every rank, for all have the same blocks."""
        return int(self._cuts[self.ranks]["tokens"])

    @property
    def sentence(self) -> str:
        """What the picture shows, in words."""
        said = self._cuts[self.ranks]["say"]
        return "".join(part if isinstance(part, str) else part["b"] for part in said)

    @property
    def edge(self) -> int:
        """There are no ticks."""
        return 0

    def static(self) -> dict[str, str]:
        """The picture as it is now, for readers without a kernel: `text/plain` and `text/html`."""
        cut = self._cuts[self.ranks]
        words = f"{cut['headline']}. {self.sentence}"
        drawn = as_svg(cut, self._memory, self.sentence, self.title)
        return {"text/plain": as_text(cut, words), "text/html": static.image(drawn, words)}

    @traitlets.validate("ranks")
    def _allowed(self, proposal: dict[str, Any]) -> int:
        if proposal["value"] not in self._cuts:
            raise ValueError(f"ranks is {proposal['value']}; allowed: {', '.join(map(str, self._cuts))}")
        return int(proposal["value"])

    # -- how it is computed --------------------------------------------------------------------------------------

    def _possible(self, ranks: int) -> bool:
        q, kv = self._sizes["q_heads"], self._sizes["kv_heads"]
        return q % ranks == 0 and (kv % ranks == 0 or ranks % kv == 0)

    def _kv_bytes(self, ranks: int) -> int:
        heads = kv_heads_per_rank(self._sizes["kv_heads"], ranks)
        return 2 * self._sizes["layers"] * heads * self._sizes["head_dim"] * self._sizes["dtype_bytes"]

    def _tokens(self, ranks: int) -> int:
        return max(0, int((self._memory - self._weights / ranks) / self._kv_bytes(ranks)))

    def _cut(self, ranks: int) -> dict[str, Any]:
        """Everything about one number of ranks, as plain data."""
        group = self._sizes["q_heads"] // self._sizes["kv_heads"]
        q = self._sizes["q_heads"] // ranks
        heads = [
            # KV head, the query heads of this rank that read it, and whether a rank before this one holds it too
            [[kv, [h for h in range(n * q, n * q + q) if h // group == kv], kv * group < n * q]
             for kv in sorted({h // group for h in range(n * q, n * q + q)})]
            for n in range(ranks)
        ]  # fmt: skip
        weights, tokens = self._weights / ranks, self._tokens(ranks)
        message = self._sizes["hidden"] * self._sizes["dtype_bytes"]
        sums = f"{2 * self._sizes['layers']} per step, each {message:,} B a token" if ranks > 1 else "none"
        rows = [
            ("weights", f"{amount(weights)}B"), ("room for K and V", f"{amount(self._memory - weights)}B" if tokens else "none"),
            ("K and V of a token", f"{self._kv_bytes(ranks):,} B"), ("tokens in the pool", f"{tokens:,}"),
            ("all-reduces", sums),
        ]  # fmt: skip
        return {
            "ranks": ranks, "headline": count(ranks, "rank"), "heads": heads, "weights": weights, "tokens": tokens,
            "kv_bytes": self._kv_bytes(ranks), "rows": rows, "say": self._say(ranks, len(heads[0]), q, tokens),
        }  # fmt: skip

    def _say(self, ranks: int, kv: int, q: int, tokens: int) -> list[Any]:
        who = "One GPU" if ranks == 1 else "Each rank"
        spans: list[Any] = [f"{who} holds {count(q, 'query head')} and {count(kv, 'KV head')}: ",
                            {"b": f"{self._kv_bytes(ranks):,} bytes"}, " of K and V per token. "]  # fmt: skip
        if not tokens:
            whose = "The weights" if ranks == 1 else "Its part of the weights"
            spans.append(f"{whose}, {amount(self._weights / ranks)}B, leave{'s' * (ranks > 1)} no room for any.")
        else:
            alone = self._tokens(1)
            more = f", {tokens / alone:.1f} times as many as one GPU" if ranks > 1 and alone else ""
            spans += ["Beside the weights there is room for ", {"b": f"{tokens:,} tokens"}, f"{more}."]
        copies = ranks // self._sizes["kv_heads"]
        if copies > 1:
            spans.append(f" A head cannot be cut, so each KV head lies on {number(copies)} ranks: more ranks than "
                         f"{self._sizes['kv_heads']} make a token no cheaper.")  # fmt: skip
        return spans
