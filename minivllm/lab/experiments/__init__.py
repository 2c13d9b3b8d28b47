"""Experiments: each is one function that gives one table, from the command line as from a notebook.

    python -m minivllm experiment paper

A table carries what it needs to be believed: the claim it tests, machine, versions, seed and the command that made
it.
"""

import importlib
import inspect
from pathlib import Path
from typing import Any

from minivllm.lab.experiments.result import Result

__all__ = ["Result", "names", "run"]

_NAMES = (
    "kv-size",
    "fragmentation",
    "paper",
    "shared-prefix",
    "block-size",
    "cache-size",
    "policy",
    "hit-rate",
    "preemption",
)
_EVERYWHERE = {"model": (None,), "device": (None, "auto")}
"""Options the command line always passes on, and what they are when nobody gave them."""


def names() -> dict[str, str]:
    """Every experiment and its one line."""
    return {name: (inspect.getdoc(_module(name)) or "").split("\n")[0] for name in _NAMES}


def run(name: str, json_path: str | Path | None = None, **options: Any) -> Result:
    """Run one experiment; with `json_path` its table is written there as JSON too.

    `model` and `device` go to the experiments that run a real model. Raises `ValueError` for a name or an option that
    there is not, saying which there are.
    """
    if name not in _NAMES:
        raise ValueError(f"experiment is {name!r}; there are {', '.join(_NAMES)}")
    function = _module(name).run
    known = inspect.signature(function).parameters
    idle = [key for key, unset in _EVERYWHERE.items() if key not in known and options.get(key) in unset]
    for key in idle:
        options.pop(key, None)
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"{name} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    result: Result = function(**options)
    result.sign(name, {key: value for key, value in options.items() if value is not None})
    if json_path is not None:
        Path(json_path).write_text(result.to_json() + "\n")
    return result


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
