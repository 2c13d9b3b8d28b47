"""What a setting may be: each check returns the value as a plain Python one, or says what was given and what is allowed.

Whole numbers may come from NumPy or torch. A bool is never a number here, and text never either.
"""

from collections.abc import Iterable, Mapping
from numbers import Real
from operator import index
from typing import Any

FLOAT_MAX = 3.4e38  # of float32, in which the sampler computes


def whole(name: str, value: Any, low: int, high: int | None = None, note: str = "") -> int:
    """A whole number from `low` to `high` (None: as large as you like). Raises `ValueError`."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or number < low or (high is not None and number > high):
        allowed = f"a whole number of {low} or more" if high is None else f"a whole number from {low} to {high}"
        raise ValueError(f"{name} is {shown(value)}; allowed: {allowed}{note}")
    return number


def real(name: str, value: Any, low: float, high: float, allowed: str, *, above: bool = False) -> float:
    """A finite number from `low` (`above`: more than it) to `high`; `allowed` says so in words. Raises `ValueError`."""
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else None
    if number is None or not low <= number <= high or (above and number == low):
        raise ValueError(f"{name} is {shown(value)}; allowed: {allowed}")
    return float(number)


def flag(name: str, value: Any) -> bool:
    """True or False, nothing that merely counts as one. Raises `ValueError`."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {shown(value)}; allowed: True, False")
    return value


def name_for(what: str, value: Any) -> str:
    """Text that is not empty. Raises `ValueError`."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is {shown(value)}; give a name that is not empty, or None for none")
    return value


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words. Raises `ValueError`."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} is {shown(value)}; allowed: {', '.join(allowed)}")
    return value


def texts(name: str, given: Any) -> tuple[str, ...]:
    """Stop strings, one or several, none of them empty. Raises `ValueError`."""
    stops = () if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(stops, list | tuple | set | frozenset) or not all(isinstance(s, str) for s in stops):
        raise ValueError(f"{name} is {shown(given)}; allowed: text, or a list of texts")
    if not all(stops):
        raise ValueError(f"{name} holds an empty string; it would stop before the first token")
    return tuple(stops)


def token_ids(name: str, given: Any) -> tuple[int, ...]:
    """Token ids, in anything that can be counted through. Raises `ValueError`."""
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
        if given is not None:
            raise ValueError(f"{name} is {shown(given)}; allowed: a list of token ids")
        return ()
    return tuple(whole(f"a token id in {name}", token, 0) for token in given)


def biases(name: str, given: Any) -> dict[int, float]:
    """Token id -> what is added to its logit. Raises `ValueError`."""
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"{name} is {shown(given)}; allowed: a dict from token id to bias")
    return {
        whole(f"a token id in {name}", token, 0): real(
            f"{name}[{token}]", bias, -FLOAT_MAX, FLOAT_MAX, "a finite number"
        )
        for token, bias in (given or {}).items()
    }


def has_methods(name: str, part: Any, methods: Iterable[str], what: str) -> None:
    """An object of yours in place of one of ours, with the methods that will be called. Raises `ValueError`."""
    missing = [method for method in methods if not callable(getattr(part, method, None))]
    if missing:
        raise ValueError(f"{name} is {shown(part)}, which has no method {', '.join(missing)}; allowed: {what}")
    if isinstance(part, type):
        raise ValueError(f"{name} is the class {part.__name__}; allowed: {what}, so make one: {part.__name__}()")


def shown(value: Any) -> str:
    """A value for a message: its repr, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
