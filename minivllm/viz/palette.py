"""One palette for every picture: colour says who, shape says what, and vermillion is only for loss.

The request colours are Okabe-Ito hues, moved so that any two of them, and loss, stay apart under protan, deutan and
tritan vision in light and in dark (closest pair >= 9.7 and >= 7.1 in OKLab x 100; `tests/viz/test_palette.py`).
"""

from collections.abc import Iterable
from typing import NamedTuple


class Colour(NamedTuple):
    """A request's colour: `fill` for marks, `tint` behind text, `edge` for outlines and letters, `on` upon the fill."""

    fill: str
    tint: str
    edge: str
    on: str


class Theme(NamedTuple):
    """Page colours, the alarm colour, and six request colours in order."""

    bg: str
    raised: str
    hair: str
    ink: str
    ink2: str
    ink3: str
    line: str
    loss: str
    loss_text: str
    loss_tint: str
    requests: tuple[Colour, ...]


LIGHT = Theme(
    "#FFFFFF", "#F6F7F9", "#E3E6EA", "#1A1D21", "#4A525C", "#68717C", "#858E98", "#D55E00", "#AD4B00", "#FCEBDF",
    (
        Colour("#00689F", "#DBEBF5", "#005A8A", "#FFFFFF"),  # blue
        Colour("#E3A72B", "#FCF0D6", "#835800", "#1A1D21"),  # orange
        Colour("#2E9673", "#DBF0E8", "#106A4C", "#1A1D21"),  # green
        Colour("#CF74B5", "#F8E6F2", "#93397A", "#1A1D21"),  # purple
        Colour("#8AD0F3", "#E4F4FC", "#1B6A96", "#1A1D21"),  # sky
        Colour("#F2DD4C", "#FBF6D3", "#6B6000", "#1A1D21"),  # yellow
    ),
)  # fmt: skip
DARK = Theme(
    "#111111", "#1B1D20", "#2B2F34", "#E9ECEF", "#B4BBC3", "#8C959F", "#707983", "#E0742F", "#FF9D63", "#3A2113",
    (
        Colour("#4C84BF", "#16283B", "#8FC1F0", "#111111"),
        Colour("#F0BD26", "#352A08", "#F5CC5C", "#111111"),
        Colour("#00A97D", "#0B2E25", "#55D3AE", "#111111"),
        Colour("#D98BC3", "#37212F", "#EBB2DB", "#111111"),
        Colour("#77D3FB", "#17333F", "#A6E1FC", "#111111"),
        Colour("#F1EC1F", "#323109", "#F1EC6A", "#111111"),
    ),
)  # fmt: skip
SIZE = len(LIGHT.requests)


def natural(request_id: str) -> int:
    """The colour a request has when it can choose: A is the first, B the second, …, G the first again."""
    letters = "".join(c for c in request_id if c.isalpha()).upper()
    digits = "".join(c for c in request_id if c.isdigit())
    if len(letters) == 1 and not digits:
        return (ord(letters) - ord("A")) % SIZE
    return (int(digits) - 1) % SIZE if digits else sum(map(ord, request_id)) % SIZE


class Colours:
    """Gives each request one colour for good; two that live at the same time never share one while there are six."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self._last: list[int] = [-1] * SIZE  # when each colour was given out last
        self._live: set[str] = set()

    def arrive(self, request_id: str) -> int:
        """The colour of a request, chosen the first time it is asked for."""
        if request_id not in self.of:
            taken = {self.of[r] for r in self._live}
            wish = natural(request_id)
            idle = [c for c in range(SIZE) if c not in taken]
            given = wish if wish in idle or not idle else min(idle, key=lambda c: (self._last[c], c))
            self.of[request_id] = given
            self._last[given] = len(self.of)
            self._live.add(request_id)
        return self.of[request_id]

    def finish(self, request_id: str) -> None:
        """The request has ended; its colour may be given to another, it keeps it too."""
        self._live.discard(request_id)


def colours(request_ids: Iterable[str]) -> dict[str, int]:
    """Colours for requests that are all alive at once, in this order."""
    given = Colours()
    return {r: given.arrive(r) for r in request_ids}


def _variables(theme: Theme) -> str:
    pairs = [("bg", f"var(--jp-layout-color0, {theme.bg})"), ("ink", f"var(--jp-ui-font-color1, {theme.ink})")]
    pairs += [(n.replace("_", "-"), getattr(theme, n)) for n in Theme._fields if n not in ("bg", "ink", "requests")]
    for at, colour in enumerate(theme.requests):
        pairs += [(f"{k}{at}", v) for k, v in zip(("f", "t", "x", "o"), colour, strict=True)]
    return ";".join(f"--{k}:{v}" for k, v in pairs)


def css() -> str:
    """The palette as CSS variables on `.mv`, light and dark; page and ink follow the notebook's theme."""
    light, dark = _variables(LIGHT), _variables(DARK)
    return f".mv{{{light};color-scheme:light}}\n.mv[data-theme=dark]{{{dark};color-scheme:dark}}\n"
