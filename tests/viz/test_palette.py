"""Colours that colour-blind readers can tell apart, and text that can be read (WCAG, Machado et al. 2009)."""

from itertools import combinations

import numpy as np
import pytest

from minivllm.viz.palette import DARK, LIGHT, SIZE, Colours, colours, css, natural

TO_LMS = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]]
)  # fmt: skip
TO_LAB = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.8086757660]]
)  # fmt: skip
VISION = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    light, dark = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def oklab(rgb):
    return TO_LAB @ np.cbrt(np.clip(TO_LMS @ rgb, 0, None))


@pytest.mark.parametrize(("theme", "least"), [(LIGHT, 9.7), (DARK, 7.1)])
@pytest.mark.parametrize("vision", VISION)
def test_no_two_colours_meet_for_a_colour_blind_reader(theme, least, vision):
    seen = [
        np.clip(np.array(VISION[vision]) @ linear(c), 0, 1) for c in (*(r.fill for r in theme.requests), theme.loss)
    ]
    assert min(100 * np.linalg.norm(oklab(a) - oklab(b)) for a, b in combinations(seen, 2)) > least - 0.1


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_stands_out_from_what_it_lies_on(theme):
    for ink in (theme.ink, theme.ink2, theme.ink3, theme.loss_text):
        assert contrast(ink, theme.bg) >= 4.5
    assert contrast(theme.loss_text, theme.loss_tint) >= 4.5
    for request in theme.requests:
        assert contrast(request.edge, request.tint) >= 4.5
        assert contrast(request.on, request.fill) >= 4.5
    assert contrast(theme.line, theme.bg) >= 3


def test_letters_take_their_own_colour_and_live_ones_never_share():
    assert [natural(x) for x in ("A", "B", "F", "G", "r1", "r8")] == [0, 1, 5, 0, 0, 1]
    given = Colours()
    assert [given.arrive(r) for r in "ABC"] == [0, 1, 2]
    assert given.arrive("G") not in (0, 1, 2)
    given.finish("A")
    assert given.arrive("M") == 0
    assert given.of["A"] == 0
    assert sorted(colours("ABCDEF").values()) == list(range(SIZE))


def test_the_stylesheet_has_every_colour_for_both_themes():
    light, dark = css().splitlines()
    for theme, sheet in ((LIGHT, light), (DARK, dark)):
        assert all(c in sheet for r in theme.requests for c in r)
        assert theme.loss in sheet and theme.loss_tint in sheet
