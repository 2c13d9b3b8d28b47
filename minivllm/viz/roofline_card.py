"""The roofline for readers without a kernel: as a light card, drawn from the same data as the live picture."""

from math import log10
from typing import Any

from minivllm.viz import static
from minivllm.viz.palette import LIGHT
from minivllm.viz.svg import circle, document, rect, text, wrap

BLUE, GREEN = LIGHT.requests[0], LIGHT.requests[2]
LEFT, RIGHT, HEIGHT = 70.0, 696.0, 300.0


def card(picture: dict[str, Any], say: str) -> str:
    """Headline, sentence, the chart, and the rows below it."""
    lines = wrap(say, 84)
    top = 84 + 22 * len(lines)
    parts = [text(24, 40, picture["headline"], 22, weight=650)]
    parts += [text(24, 66 + 22 * at, line, 15) for at, line in enumerate(lines)]
    parts += [text(24, top + 8, picture["heading"], 13, weight=600), *_chart(picture, top + 42)]
    y = top + HEIGHT + 110
    for name, value, note in picture["rows"]:
        parts += [text(LEFT, y, name, 13), text(330, y, value, 13, weight=600, anchor="end")]
        parts += [text(440, y, note, 12, LIGHT.ink3, anchor="end")]
        y += 24
    for line in wrap(picture["source"], 100) if picture["source"] else []:
        parts.append(text(LEFT, y, line, 12, LIGHT.ink3))
        y += 18
    if picture["lanes"]:
        parts += _lanes(picture["lanes"], y + 20)
        y += 250
    return document(static.WIDTH, y + 4, parts)


def _chart(picture: dict[str, Any], top: float) -> list[str]:
    axes, roof, here, prefill = picture["axes"], picture["roof"], picture["here"], picture["prefill"]
    base = top + HEIGHT

    def across(value: float) -> float:
        low, high = map(log10, axes["x"])
        return round(LEFT + (log10(value) - low) / (high - low) * (RIGHT - LEFT), 1)

    def up(value: float) -> float:
        low, high = map(log10, axes["y"])
        return round(base - (log10(value) - low) / (high - low) * HEIGHT, 1)

    parts = []
    for value, words in axes["xticks"]:
        x = across(value)
        parts += [_line(f"M{x} {top}V{base}", LIGHT.hair), text(x, base + 18, words, 11.5, LIGHT.ink3, anchor="middle")]
    for value, words in axes["yticks"]:
        y = up(value)
        parts += [
            _line(f"M{LEFT} {y}H{RIGHT}", LIGHT.hair),
            text(LEFT - 8, y + 4, words, 11.5, LIGHT.ink3, anchor="end"),
        ]
    parts.append(text((LEFT + RIGHT) / 2, base + 38, "work per byte read, FLOP/B", 12, LIGHT.ink2, anchor="middle"))
    parts.append(text(24, top - 6, f"speed, {axes['unit']}", 12, LIGHT.ink2))
    start = max(axes["x"][0], axes["y"][0] / roof["bandwidth"])
    ridge, flat = across(roof["ridge"]), up(roof["compute"])
    parts.append(_line(f"M{ridge} {flat + 6}V{base}", LIGHT.ink3, dash="2 4"))
    parts.append(text(ridge + 6, base - 8, roof["words"], 11.5, LIGHT.ink3))
    if roof["never"]:
        x, tight = across(roof["never"]), ridge - across(roof["never"]) < 90
        parts.append(_line(f"M{x} {up(roof['never'] * roof['bandwidth'])}V{base}", LIGHT.ink3, dash="2 4"))
        for at, words in enumerate(roof["limit"]):
            parts.append(text(x - 6 if tight else x + 6, base - 26 + 18 * at, words, 11.5, LIGHT.ink3,
                              anchor="end" if tight else "start"))  # fmt: skip
    parts.append(_line(f"M{across(start)} {up(start * roof['bandwidth'])}L{ridge} {flat}H{RIGHT}", LIGHT.ink, 2.25))
    parts.append(text(min(ridge, RIGHT - 150), flat - 9, roof["flat"], 12, LIGHT.ink2))
    foot = roof["ridge"] / 2.2
    parts.append(text(across(foot) - 12, up(foot * roof["bandwidth"]), roof["slope"], 12, LIGHT.ink2, anchor="end"))
    for point in picture["points"]:
        x, y, same = across(point["x"]), up(point["y"]), point["x"] == here["x"]
        if point["measured"]:
            square = up(point["measured"])
            parts.append(_line(f"M{x} {y}V{square}", LIGHT.loss if same else LIGHT.line, 2 if same else 1))
            parts.append(rect(x - 5, square - 5, 10, 10, LIGHT.bg, LIGHT.ink if same else LIGHT.line, rx=1))
        parts.append("" if same else circle(x, y, 4.5, BLUE.fill, BLUE.edge))
    for name, fill in (("cold", GREEN.fill), ("warm", LIGHT.bg)):
        if prefill and prefill[name]:
            x, y = across(prefill[name][0]), up(prefill[name][1])
            parts.append(_line(f"M{x} {y - 7}l6.5 7l-6.5 7l-6.5 -7Z", GREEN.edge, 1.5, fill))
    if prefill:
        x, y = across(prefill["cold"][0]), up(prefill["cold"][1])
        parts.append(text(x + 8, y + 24, " ".join(prefill["words"]), 12, LIGHT.ink2, anchor="end"))
        x, y = (across(prefill["warm"][0]) + 14, up(prefill["warm"][1]) + 4) if prefill["warm"] else (x + 8, y + 40)
        for at, words in enumerate(filter(None, (prefill["hit"], prefill["change"]))):
            parts.append(text(x, y + 16 * at, words, 12, LIGHT.ink2, anchor="start" if prefill["warm"] else "end"))
    x, y = across(here["x"]), up(here["y"])
    parts += [circle(x, y, 11, LIGHT.bg, LIGHT.ink), circle(x, y, 5.5, BLUE.fill, BLUE.edge)]
    parts.append(text(x - 16, y - 12, here["words"], 12, weight=700, anchor="end"))
    return parts


def _lanes(lanes: dict[str, Any], top: float) -> list[str]:
    """Three steps one by one, and three with the next one in flight; one scale for both."""
    scale = (RIGHT - LEFT) / lanes["end"]
    rows = [top + offset for offset in (44, 72, 136, 164)]
    parts = [
        text(24, top, "Same three steps, twice", 15, weight=600),
        text(LEFT, top + 208, lanes["note"], 12, LIGHT.ink3),
    ]
    for way, at, said in (("step(), one by one", rows[0], 0), ("run(), one in flight", rows[2], 1)):
        parts += [
            text(24, at - 10, way, 12.5, weight=600),
            text(RIGHT, at - 10, " ".join(lanes["says"][said]), 12.5, anchor="end"),
        ]
    for at, name in zip(rows, ("CPU", "GPU") * 2, strict=True):
        parts.append(text(LEFT - 12, at + 16, name, 12, LIGHT.ink2, anchor="end"))
    for box in lanes["boxes"]:
        x, width = LEFT + box["start"] * scale, (box["end"] - box["start"]) * scale
        color = GREEN if box["row"] % 2 == 0 else BLUE
        fill, edge = (LIGHT.bg, LIGHT.loss) if box["idle"] else (color.fill, color.edge)
        parts.append(rect(round(x, 1), rows[box["row"]], round(max(width, 1), 1), 22, fill, edge, rx=2))
        if width > 6 * len(box["words"]) and box["words"]:
            size = 11.5 if width > 30 else 9
            x = round(x + width / 2, 1)
            parts.append(text(x, rows[box["row"]] + 15, box["words"], size, LIGHT.bg, anchor="middle"))
    return parts


def _line(path: str, stroke: str, width: float = 1, fill: str = "none", dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="{path}" fill="{fill}" stroke="{stroke}" stroke-width="{width:g}" stroke-linejoin="round"{dashed}/>'
    )
