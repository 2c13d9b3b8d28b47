"""What a block size trades: the share of held slots in use, against the entries of a request's block table."""

from collections.abc import Mapping, Sequence
from typing import Any

from minivllm.viz.palette import DARK, LIGHT

INK = "#7A828C"
"""Grey that can be read on white and on black: plotly does not know the notebook's theme."""


def trade_off(
    sizes: Sequence[int], used: Sequence[float], entries: Sequence[int], said: Mapping[int, float] | None = None
) -> Any:
    """A plotly figure over block `sizes`: `used` per cent of the held slots (left), table `entries` (right axis).

    `said` are predictions, per cent by block size: hollow triangles on the axis of the result. Raises `ValueError` for
    lists of different lengths.
    """
    import plotly.graph_objects as go

    if not len(sizes) == len(used) == len(entries):
        raise ValueError(f"{len(sizes)} sizes, {len(used)} shares, {len(entries)} entries; allowed: as many of each")
    blue, loss = DARK.requests[0].fill, LIGHT.loss
    names = [f"{size:,}" for size in sizes]
    figure = go.Figure()
    figure.add_scatter(
        x=names, y=list(used), name="slots in use, % of those held", mode="lines+markers+text",
        line={"color": blue, "width": 3}, marker={"size": 8}, text=[f"{share:.0f}" for share in used],
        textposition="top center", textfont={"color": INK},
    )  # fmt: skip
    figure.add_scatter(
        x=names, y=list(entries), name="entries in the longest table", yaxis="y2", mode="lines+markers",
        line={"color": INK, "width": 2, "dash": "dot"}, marker={"symbol": "square-open", "size": 8},
    )  # fmt: skip
    if said:
        figure.add_scatter(
            x=[f"{size:,}" for size in said], y=list(said.values()), name="what you said", mode="markers",
            marker={"symbol": "triangle-down-open", "size": 14, "color": INK, "line": {"width": 2}},
        )  # fmt: skip
    figure.add_scatter(
        x=[names[-1]], y=[used[-1] / 2], mode="text", text=["empty ends<br>of last blocks"], textposition="middle left",
        textfont={"color": loss}, showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    grid = {"gridcolor": "rgba(122,130,140,.25)", "zeroline": False, "linecolor": INK}
    figure.update_layout(
        template="none", paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": INK, "size": 13},
        height=380, margin={"l": 64, "r": 64, "t": 16, "b": 56}, legend={"orientation": "h", "y": 1.14, "x": 0},
        xaxis={"title": {"text": "block_size (tokens)"}, "type": "category", **grid},
        yaxis={"title": {"text": "% in use"}, "range": [0, 112], "tickvals": [0, 20, 40, 60, 80, 100], **grid},
        yaxis2={
            "title": {"text": "table entries"}, "overlaying": "y", "side": "right", "type": "log", "showgrid": False,
            "range": [-0.1, 3.36], "tickmode": "array", "tickvals": [1, 4, 16, 64, 256, 1024], "linecolor": INK,
        },
    )  # fmt: skip
    return figure
