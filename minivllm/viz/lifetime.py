"""When a view's time is over: its engine was closed, or replaced by another under the same name in the notebook.

A stale view must say so and do nothing: it must never show one engine under another's title. A view made by running a
cell again replaces the one that this cell made before.
"""

from typing import Any, ClassVar
from weakref import WeakSet


def namespace() -> dict[str, Any]:
    """The notebook's variables; empty outside IPython."""
    shell = _shell()
    return shell.user_ns if shell else {}


def cell() -> str | None:
    """The id of the notebook cell that is running, if the front end tells it."""
    shell = _shell()
    parent = shell.get_parent() if shell and hasattr(shell, "get_parent") else {}
    return (parent.get("metadata") or {}).get("cellId")


def _shell() -> Any:
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


class Lifetime:
    """Watches the engine of one view. `view` has `engine`, `disabled`, `notice` and `close()`."""

    _all: ClassVar[WeakSet["Lifetime"]] = WeakSet()

    def __init__(self, view: Any) -> None:
        self.view = view
        self.cell = cell()
        self.names = [n for n, value in namespace().items() if value is view.engine and not n.startswith("_")]
        for other in list(Lifetime._all):
            if self.cell and other.cell == self.cell:
                Lifetime._all.discard(other)
                other.view.close()
            else:
                other.over()
        Lifetime._all.add(self)

    def over(self) -> bool:
        """Whether the engine is gone; if so the view is disabled and says which engine it belonged to."""
        engine, space = self.view.engine, namespace()
        closed = engine.closed
        replaced = bool(self.names) and not any(space.get(n) is engine for n in self.names)
        if closed or replaced:
            fate = "closed" if closed else "replaced"
            self.view.notice = f"this view belongs to engine {engine.number}, which was {fate}"
            self.view.disabled = True
        return closed or replaced
