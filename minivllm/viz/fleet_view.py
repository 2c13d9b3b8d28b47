"""Replicas side by side and the router in front of them: where a request goes, and what each replica would have found.

A tick is a routing decision. All of them are computed once; the browser steps through them, and swaps the router.
"""

from collections.abc import Mapping
from typing import Any

import traitlets

from minivllm.allowed import shown
from minivllm.lab.fleet import Fleet, Routed
from minivllm.viz import bundle, static
from minivllm.viz.fleet_card import as_svg, as_text
from minivllm.viz.fleet_track import Tones, frames
from minivllm.viz.playable import Playable


class FleetView(Playable):
    """A fleet that has served its calls, or several of them by name that served the same calls with different routers.

    Tick k shows what the router saw when it made its k-th decision, and where the request went; tick 0 is before any.
    A replica *knows* the tokens it would find cached at that moment; what is evicted before the request starts is lost.
    `router` is the name of the fleet that is shown. Raises `ValueError` for fleets that cannot be compared.
    """

    _esm = bundle.module("fleet_view")
    _css = bundle.css("base", "engine_view", "fleet_view")

    trace = traitlets.Dict().tag(sync=True)
    router = traitlets.Unicode().tag(sync=True)

    def __init__(self, fleets: Mapping[str, Fleet] | Fleet, title: str | None = None) -> None:
        self.fleets = _comparable({"": fleets} if isinstance(fleets, Fleet) else fleets)
        first = next(iter(self.fleets))
        tones = Tones([routed.call for routed in self.fleets[first].routed])
        self._frames = {name: frames(fleet, tones) for name, fleet in self.fleets.items()}
        told = [
            {"name": name, "about": about(fleet), "blocks": [r.engine.config.num_blocks for r in fleet.replicas],
             "frames": self._frames[name]}
            for name, fleet in self.fleets.items()
        ]  # fmt: skip
        trace = {"engine": "a fleet of replicas", "few": tones.few, "fleets": told}
        super().__init__(title=title or "", trace=trace, router=first)

    def __repr__(self) -> str:
        return f"FleetView({f'{self.router}, ' if self.router else ''}decision {self.tick} of {self.edge})"

    # -- what it shows -------------------------------------------------------------------------------------------

    @property
    def fleet(self) -> Fleet:
        """The fleet that is shown."""
        return self.fleets[self.router]

    @property
    def edge(self) -> int:
        """The number of decisions."""
        return len(self.fleet.routed)

    @property
    def decision(self) -> Routed | None:
        """The decision that is shown; None before the first."""
        return self.fleet.routed[self.tick - 1] if self.tick else None

    @property
    def sentence(self) -> str:
        """What was decided, in words: printed above the picture and read aloud."""
        return "".join(part if isinstance(part, str) else next(iter(part.values())) for part in self._frame["say"])

    def static(self) -> dict[str, str]:
        """The picture as it is now, for readers without a kernel: `text/plain` and `text/html`."""
        told = next(each for each in self.trace["fleets"] if each["name"] == self.router)
        headline = f"Decision {self.tick} of {self.edge}"
        plain = as_text(told, self._frame, f"{headline}. {self.sentence}")
        drawn = as_svg(told, self._frame, headline, self.sentence, self.title)
        return {"text/plain": plain, "text/html": static.image(drawn, f"{headline}. {self.sentence}")}

    @property
    def _frame(self) -> dict[str, Any]:
        return self._frames[self.router][self.tick]

    @traitlets.validate("router")
    def _known(self, proposal: dict[str, Any]) -> str:
        name: str = proposal["value"]
        if name not in self.fleets:
            raise ValueError(f"router is {name!r}; allowed: {', '.join(self.fleets)}")
        return name


def about(fleet: Fleet) -> str:
    """What came of the whole run, in one line."""
    middle = fleet.ttft[len(fleet.ttft) // 2]
    return (
        f"whole run: {100 * fleet.hit_rate:.0f} % of prompt tokens hit, median first token after {1e3 * middle:,.0f} ms, "
        f"busiest replica {fleet.balance:.2f}\u00a0× its even share"
    )


def _comparable(fleets: Mapping[str, Fleet]) -> dict[str, Fleet]:
    """The fleets, if there are any, all have served, and all the same calls."""
    if not isinstance(fleets, Mapping) or not all(isinstance(fleet, Fleet) for fleet in fleets.values()):
        raise ValueError(f"fleets is {shown(fleets)}; give a fleet, or a dict of several by name")
    if not fleets:
        raise ValueError("fleets is empty; give a fleet, or several by name")
    for name, fleet in fleets.items():
        if not fleet.routed:
            raise ValueError(f"the fleet {name!r} has served nothing; call serve() first")
    first, *others = fleets
    for name in others:
        mine, theirs = ({routed.call for routed in fleets[each].routed} for each in (first, name))
        if odd := sorted(mine ^ theirs):
            raise ValueError(f"the fleets {first!r} and {name!r} did not serve the same calls: only one has {odd[0]!r}")
    return dict(fleets)
