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


def names() -> dict[str, str]:
    """Every experiment and its one line."""
    return {name: (inspect.getdoc(_module(name)) or "").split("\n")[0] for name in _NAMES}


def run(name: str, json_path: str | Path | None = None, **options: Any) -> Result:
    """Run one experiment; with `json_path` its table is written there as JSON too.

    An option that is None or "auto" counts as not given: `model` and `device` can be passed to every experiment.
    Raises `ValueError` for a name or an option that there is not, saying which there are.
    """
    if name not in _NAMES:
        raise ValueError(f"experiment is {name!r}; there are {', '.join(_NAMES)}")
    function = _module(name).run
    known = inspect.signature(function).parameters
    given = {key: value for key, value in options.items() if key in known or value not in (None, "auto")}
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"{name} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    result: Result = function(**given)
    seed = given.get("seed", known["seed"].default) if "seed" in known else None
    result.sign(name, {key: value for key, value in given.items() if value not in (None, "auto")}, seed)
    if json_path is not None:
        Path(json_path).write_text(result.to_json() + "\n", encoding="utf-8")
    return result


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
