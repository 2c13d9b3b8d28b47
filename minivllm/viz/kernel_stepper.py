"""A Triton kernel, stepped line by line: the page it reads, what is masked, and the three numbers it carries along.

The trace comes from Triton's interpreter (`lab.kernel_trace`) and goes to the browser once, together with one trace per
fault: the browser moves alone. Works for any kernel that uses the names of `lab.paged_kernel.paged`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import traitlets

from minivllm.kernels import reference
from minivllm.lab.kernel_trace import Trace, trace
from minivllm.lab.paged_kernel import Call, paged, source_of, variant
from minivllm.lab.scattered import scattered_call
from minivllm.viz import bundle, kernel_static
from minivllm.viz.kernel_story import Story
from minivllm.viz.playable import Playable

FAULTS = {
    "mask V off": ("V + at, mask=valid[:, None], other=0.0", "V + at"),
    "rescale off": ("a = tl.exp(m - m2)", "a = 1.0"),
    "fp16 sums": (
        "a * acc + tl.sum(p[:, None] * v, axis=0)",
        "(a * acc + tl.sum(p[:, None] * v, axis=0)).to(tl.float16).to(tl.float32)",
    ),
    "GQA off": ("head // G", "head"),
}
"""Name of a fault -> the piece of the kernel's source that it exchanges, and for what."""
OWN_LINES = ("a = ", "l = ", "acc = ")


class KernelStepper(Playable):
    """One program of a kernel, line by line. `show()` displays a static snapshot, then the live widget.

    A tick is one line that has run: `tick` is the one shown, 0 … `edge`; `page` the page it belongs to (1 …). Setting
    `fault` shows the run of a broken kernel: one of `FAULTS`, or "" for the kernel as it is.
    """

    _esm = bundle.module("kernel_stepper")
    _css = bundle.css("base", "kernel_stepper")

    fault = traitlets.Unicode("").tag(sync=True)
    by_page = traitlets.Bool(False).tag(sync=True)
    story = traitlets.Dict().tag(sync=True)

    def __init__(
        self, kernel: Any = paged, call: Call | None = None, program: tuple[int, int] = (0, 3),
        faults: Mapping[str, tuple[str, str]] = FAULTS, who: str = "A",
    ) -> None:  # fmt: skip
        self.call = scattered_call() if call is None else call
        self.program, self.who = program, who
        source = source_of(kernel)
        kernels = {"": kernel} | {n: variant(kernel, *p) for n, p in faults.items() if source.count(p[0]) == 1}
        self.traces: dict[str, Trace] = {name: trace(one, self.call, program) for name, one in kernels.items()}
        self.truth = _dense(self.call)[program]
        runs = {name: self._run(name, one) for name, one in self.traces.items()}
        super().__init__(title=f"kernel stepper: {kernel.fn.__name__}", story=self._stage() | {"runs": runs})

    def __repr__(self) -> str:
        return f"KernelStepper(page {self.page} of {self.pages}, {self.difference})"

    @traitlets.validate("fault")
    def _known_fault(self, proposal: Any) -> str:
        if proposal["value"] not in self.story["runs"]:
            allowed = ", ".join(repr(name) for name in self.story["runs"])
            raise ValueError(f"fault is {proposal['value']!r}; allowed: {allowed}")
        return str(proposal["value"])

    # where it stands

    @property
    def edge(self) -> int:
        """The last line of the run that is shown."""
        return len(self._steps) - 1

    @property
    def pages(self) -> int:
        """Pages the request has."""
        return int(self.story["pages"])

    @property
    def page(self) -> int:
        """The page being read, from 1; 0 before the loop."""
        return int(self._now["page"])

    @page.setter
    def page(self, page: int) -> None:
        """Go to the last line of a page; a page beyond the last is the end."""
        ends = [at for at, step in enumerate(self._steps) if step["page"] == page and not step.get("end")]
        self.tick = ends[-1] if ends else (self.edge if page > 0 else 0)

    @property
    def values(self) -> dict[str, Any]:
        """The kernel's variables as they are after the line that is shown."""
        found: dict[str, Any] = {}
        for step in self.traces[self.fault].steps[: self.tick + 1]:
            found |= step.made
        return found

    @property
    def sentence(self) -> str:
        """What the line shown has done, in words."""
        return str(self._now["say"])

    @property
    def difference(self) -> str:
        """How far the finished output is from dense attention."""
        return str(self.story["runs"][self.fault]["verdict"])

    # what is displayed

    def static(self) -> dict[str, str]:
        """The whole pass as text and as a picture, for readers without a kernel."""
        rows = kernel_static.rows(self.traces[self.fault])
        say = f"One program, {self.pages} pages in table order; it {self.difference}."
        return {"text/plain": kernel_static.table(rows, say), "text/html": kernel_static.html(rows, say)}

    @property
    def _now(self) -> dict[str, Any]:
        return self._steps[min(self.tick, self.edge)]

    @property
    def _steps(self) -> list[dict[str, Any]]:
        return list(self.story["runs"][self.fault]["steps"])

    def _stage(self) -> dict[str, Any]:
        size, tokens = self.call.numbers["B"], int(self.call.tensors["lens"][self.program[0]])
        table = self.call.tensors["tables"][self.program[0]].tolist()
        return {
            "who": self.who, "head": self.program[1], "size": size, "tokens": tokens, "pages": -(-tokens // size),
            "table": table[: -(-tokens // size)], "dim": self.call.numbers["D"], "heads": self.call.numbers["H"],
        }  # fmt: skip

    def _run(self, name: str, found: Trace) -> dict[str, Any]:
        first = next(n for n, line in enumerate(found.lines) if line.startswith("def ")) + 1
        first += found.lines[first].strip().startswith('"""')
        size, tokens = self.call.numbers["B"], int(self.call.tensors["lens"][self.program[0]])
        told = Story(found, self.who, self.program[1], tokens, size).tell()
        steps, page = [], 0
        for step, say in zip(found.steps, told, strict=True):
            page = int(step.made["j"]) + 1 if "j" in step.made else page
            made = {key: _json(value) for key, value in step.made.items() if key not in ("mine", "at", "slot", "d")}
            touched = {access.tensor: _lanes(access.index, access.outside) for access in step.touched}
            steps.append({"line": step.line - first, "page": page, "say": say, "made": made, "touched": touched})
        steps[-1]["end"] = found.lines[found.steps[-1].line].strip().startswith("tl.store")
        code = [line.replace("tl.", "") for line in found.lines[first:]]
        own = [n for n, line in enumerate(found.lines[first:]) if line.strip().startswith(OWN_LINES)]
        return {
            "code": code,
            "own": own,
            "steps": steps,
            "verdict": self._verdict(found),
            "outside": list(found.outside),
        }

    def _verdict(self, found: Trace) -> str:
        ours = torch.from_numpy(found.out[self.program])
        if not bool(torch.isfinite(ours).all()):
            return f"ends in {int(torch.isnan(ours).sum())} NaN of {ours.numel()}"
        worst = float((ours - self.truth).abs().max())
        return "equals dense attention" if worst < 1e-6 else f"differs from dense attention by {worst:.1g}"


def _dense(call: Call) -> torch.Tensor:
    """The oracle: `[R, Hq, D]` through the reference, which gathers all pages first."""
    t = {
        name: tensor.cpu().float() if tensor.is_floating_point() else tensor.cpu()
        for name, tensor in call.tensors.items()
    }
    return reference.decode_rows(t["q"], torch.stack((t["K"], t["V"])), t["tables"], t["lens"])


def _json(value: Any) -> Any:
    """Numbers a browser can read: six digits, NaN and the infinities as words."""
    if isinstance(value, np.ndarray):
        return [_json(one) for one in value] if value.ndim else _json(value.item())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    number = float(value)
    if np.isfinite(number):
        return float(f"{number:.6g}")
    return "NaN" if np.isnan(number) else "∞" if number > 0 else "−∞"


def _lanes(index: np.ndarray, outside: int) -> dict[str, Any]:
    """What a load touched, small: first and last index, lanes in use, lanes in all, lanes out of bounds."""
    real = index[index >= 0]
    low, high = (int(real.min()), int(real.max())) if real.size else (-1, -1)
    return {"low": low, "high": high, "used": int(real.size), "lanes": int(index.size), "outside": outside}
