"""The ranks for readers without a kernel: as characters, and as a light card."""

from typing import Any

from minivllm.viz import static
from minivllm.viz.palette import LIGHT
from minivllm.viz.svg import document, rect, text, wrap

BAR = 320.0
"""Width of a GPU's memory."""


def as_text(cut: dict[str, Any], say: str) -> str:
    """The sentence, the heads of each rank (`*` marks a copy), and the numbers that all of them have."""
    lines = [say]
    for n, groups in enumerate(cut["heads"]):
        kv = ", ".join(f"{head}{'*' if copy else ''}" for head, _, copy in groups)
        lines.append(f"  rank {n:<3} q heads {_queries(groups):<8} KV {kv}")
    return "\n".join([*lines, *(f"{name:<20} {value}" for name, value in cut["rows"])])


def as_svg(cut: dict[str, Any], memory: float, say: str, title: str) -> str:
    """The sentence; per rank its heads and its memory to scale; then the numbers."""
    lines = wrap(say, 84)
    parts = [text(24, 40, cut["headline"], 22, weight=650), text(696, 40, title, 12, LIGHT.ink3, anchor="end")]
    parts += [text(24, 66 + 22 * at, line, 15) for at, line in enumerate(lines)]
    y, weights = 66.0 + 22 * len(lines), min(1.0, cut["weights"] / memory) * BAR
    for n, groups in enumerate(cut["heads"]):
        copies = any(copy for _, _, copy in groups)
        kv = f"{groups[0][0]}" if len(groups) == 1 else f"{groups[0][0]}–{groups[-1][0]}"
        parts += [text(24, y + 16, f"rank {n}", 13, weight=600), text(96, y + 16, f"q heads {_queries(groups)}", 12),
                  text(210, y + 16, f"KV {kv}{', a copy' if copies else ''}", 12, LIGHT.loss_text if copies else LIGHT.ink),
                  rect(376, y + 4, weights, 16, LIGHT.raised, LIGHT.ink2),
                  rect(376 + weights, y + 4, BAR - weights, 16, LIGHT.ink2, LIGHT.ink2)]  # fmt: skip
        y += 24
    parts.append(text(376, y + 14, "memory of each: weights, then K and V", 12, LIGHT.ink3))
    y += 38
    for name, value in cut["rows"]:
        parts += [text(24, y, name, 12, LIGHT.ink2), text(210, y, value, 12, weight=600)]
        y += 20
    return document(static.WIDTH, y, parts)


def _queries(groups: list[Any]) -> str:
    first, last = groups[0][1][0], groups[-1][1][-1]
    return f"{first}" if first == last else f"{first}–{last}"
