"""A Triton kernel under the magnifying glass: every line of one program, what it made, every address it touched.

Triton's interpreter runs a kernel as ordinary Python, so Python's own tracing can stop after each line. Loads and
stores are checked before they happen: an address outside its tensor is reported and reads NaN, where a GPU would read
a stranger's memory or fault. On a machine whose Triton compiles, the same happens in a child process that interprets.
"""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from minivllm.kernels.launch import INTERPRETED
from minivllm.lab.paged_kernel import Call, module_of, source_of

_TOUCH = re.compile(r"tl\.(load|store)\(\s*(\w+)")


class OutOfBounds(IndexError):
    """A kernel touched an address outside the tensor it meant."""


@dataclass(frozen=True)
class Access:
    """One load or store: which tensor, `index` in it for each lane (-1 = masked), and how many lanes were outside."""

    tensor: str
    store: bool
    index: np.ndarray
    outside: int


@dataclass(frozen=True)
class Step:
    """One line that ran: its number in `Trace.lines`, the variables it set, what it touched."""

    line: int
    made: dict[str, Any]
    touched: tuple[Access, ...]


@dataclass(frozen=True)
class Trace:
    """One program of a launch, line by line. `outside` tells every access out of bounds, of all programs observed."""

    lines: tuple[str, ...]
    steps: tuple[Step, ...]
    out: np.ndarray
    outside: tuple[str, ...]


def trace(kernel: Any, call: Call, program: tuple[int, int] = (0, 0)) -> Trace:
    """Run `program` (row, head) of `call` and record it line by line. Works on copies, on the CPU."""
    return _run(kernel, call, program)


def check_bounds(kernel: Any, call: Call) -> None:
    """Run all programs of `call`, on copies. Raises `OutOfBounds` with the first access outside its tensor."""
    found = _run(kernel, call, None).outside
    if found:
        raise OutOfBounds(found[0])


def _run(kernel: Any, call: Call, program: tuple[int, int] | None) -> Trace:
    job = _Job(source_of(kernel), kernel.fn.__name__, call.grid, _to_cpu(call), call.numbers, program)
    return _observe(job) if INTERPRETED else _elsewhere(job)


@dataclass
class _Job:
    source: str
    name: str
    grid: tuple[int, int]
    tensors: dict[str, torch.Tensor]
    numbers: dict[str, int]
    program: tuple[int, int] | None  # None: all of them, unrecorded


@dataclass
class _Watch:
    """What the hooks write to while a kernel runs."""

    job: _Job
    code: Any
    first: int
    grid_index: tuple[int, int] = (0, 0)
    steps: list[Step] = field(default_factory=list)
    touched: list[Access] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    at: int | None = None

    @property
    def recording(self) -> bool:
        return self.grid_index == self.job.program

    def follow(self, frame: Any, event: str, _: Any) -> Any:
        """Python calls this before each line of the kernel: book the line that has just ended."""
        if event in ("line", "return"):
            if self.at is not None:
                self._book(frame.f_locals)
            self.at = frame.f_lineno if event == "line" else None
        return self.follow

    def _book(self, variables: dict[str, Any]) -> None:
        fresh = {name: value for name, value in variables.items() if self.known.get(name, self) is not value}
        self.known |= fresh
        made = {name: plain for name, value in fresh.items() if (plain := _plain(value)) is not None}
        if made or self.touched:
            self.steps.append(Step((self.at or 0) - self.first, made, tuple(self.touched)))
        self.touched = []

    def meet(self, addresses: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Note an access and return the mask without the lanes that are out of bounds, and those lanes."""
        line = self._line()
        found = _TOUCH.search(line)
        tensor = self.job.tensors.get(found[2]) if found else None
        if found is None or tensor is None:
            return mask, np.zeros_like(mask)
        index = (addresses.astype(np.int64) - tensor.data_ptr()) // tensor.element_size()
        stray = mask & ((index < 0) | (index >= tensor.numel()))
        if stray.any():
            row, head = self.grid_index
            self.outside.append(
                f"program ({row}, {head}): `{line.strip()}` touches {int(stray.sum())} addresses outside {found[2]}, "
                f"the first at {int(index[stray][0]):,} of {tensor.numel():,}"
            )
        if self.recording:
            seen = np.where(mask, index, -1)
            self.touched.append(Access(found[2], found[1] == "store", seen, int(stray.sum())))
        return mask & ~stray, stray

    def _line(self) -> str:
        frame = sys._getframe()
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back  # type: ignore[assignment]
        return "" if frame is None else self.job.source.splitlines()[frame.f_lineno - self.first]


def _observe(job: _Job) -> Trace:
    from triton.runtime.interpreter import InterpretedFunction

    function = getattr(module_of(job.source), job.name)
    kernel = function if isinstance(function, InterpretedFunction) else InterpretedFunction(function.fn)
    code = kernel.rewrite().__code__
    lines = tuple(job.source.splitlines())
    shift = next(n for n, line in enumerate(lines) if line.startswith("def "))
    watch = _Watch(job, code, code.co_firstlineno - shift)

    def enter(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is code and event == "call":
            return watch.follow if watch.recording else None
        return None

    with _hooks(watch):
        before = sys.gettrace()
        sys.settrace(enter)
        try:
            with np.errstate(all="ignore"):
                kernel[(1, 1) if job.program else job.grid](**job.tensors, **job.numbers)
        except Exception as error:
            raise error.__cause__ or error from None
        finally:
            sys.settrace(before)
    return Trace(lines, tuple(watch.steps), job.tensors["out"].numpy(), tuple(watch.outside))


@contextmanager
def _hooks(watch: _Watch) -> Iterator[None]:
    """Every load, store and change of program passes `watch` while this lasts."""
    from triton.runtime import interpreter

    builder, patch = interpreter.interpreter_builder, interpreter._patch_lang_tensor
    load, store = builder.create_masked_load, builder.create_masked_store
    move, size = builder.set_grid_idx, builder.set_grid_dim

    def watched_load(ptrs: Any, mask: Any, other: Any, *rest: Any) -> Any:
        mask.data, stray = watch.meet(ptrs.data, mask.data)
        got = load(ptrs, mask, other, *rest)
        if stray.any():
            got.data = got.data.copy()
            got.data[stray] = np.nan if got.data.dtype.kind == "f" else 0
        return got

    def watched_store(ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        mask.data, _ = watch.meet(ptrs.data, mask.data)
        return store(ptrs, value, mask, *rest)

    def watched_move(x: int, y: int, z: int) -> None:
        x, y = watch.job.program or (x, y)
        watch.grid_index, watch.known, watch.at = (x, y), {}, None
        move(x, y, z)

    def watched_size(*_: int) -> None:
        size(*watch.job.grid, 1)

    hooks: dict[str, Any] = {"create_masked_load": watched_load, "create_masked_store": watched_store}
    hooks |= {"set_grid_idx": watched_move, "set_grid_dim": watched_size}
    for name, hook in hooks.items():
        setattr(builder, name, hook)

    def patch_tensor(tensor: Any, *rest: Any) -> None:
        patch(tensor, *rest)  # Triton 3.6 asks numpy for int([n]), which numpy 2.5 refuses
        tensor.__index__ = lambda self: int(np.asarray(self.handle.data).reshape(-1)[0])

    interpreter._patch_lang_tensor = patch_tensor
    try:
        yield
    finally:
        interpreter._patch_lang_tensor = patch
        for name in hooks:
            delattr(builder, name)  # the class's own method shows again


def _plain(value: Any) -> Any:
    """A kernel's variable as a number or an array; None for pointers and what is no value."""
    if isinstance(value, bool | int | float):
        return value
    data = getattr(getattr(value, "handle", None), "data", None)
    if data is None or data.dtype == np.uint64:
        return None
    return data.item() if data.size == 1 and getattr(value, "shape", ()) in ((), []) else np.array(data)


def _to_cpu(call: Call) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in call.tensors.items()}


def _elsewhere(job: _Job) -> Trace:
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "minivllm.lab.kernel_trace"]
    done = subprocess.run(command, input=pickle.dumps(job), env=environment, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the interpreter's process failed: {done.stderr.decode()[-2000:]}")
    found: Trace = pickle.loads(done.stdout)
    return found


if __name__ == "__main__":
    from minivllm.lab import kernel_trace  # under its own name, so that what is pickled can be read back

    kernel_trace.sys.stdout.buffer.write(pickle.dumps(kernel_trace._observe(pickle.loads(sys.stdin.buffer.read()))))
