"""What a student has predicted and solved, kept in one small file on the student's own disk.

The file is `$MINIVLLM_HOME/progress.json`, by default `~/.minivllm/progress.json`; nothing is sent anywhere.
A file that cannot be read is moved aside; a disk that cannot be written to costs the memory, not the lesson.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FIELDS = ("predictions", "results", "solved", "hints")


def home() -> Path:
    """The folder of the progress file: `$MINIVLLM_HOME`, else `~/.minivllm`."""
    return Path(os.environ.get("MINIVLLM_HOME") or Path.home() / ".minivllm")


def load() -> dict[str, dict[str, Any]]:
    """Everything recorded so far: `{"predictions": {key: answer}, "results": …, "solved": …, "hints": …}`.

    A missing file gives empty fields. A damaged one becomes `progress.json.damaged`, with a note on stderr.
    """
    path = home() / "progress.json"
    empty: dict[str, dict[str, Any]] = {field: {} for field in FIELDS}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return empty | {field: _plain(found[field]) for field in FIELDS if field in found}
    except (ValueError, TypeError, AttributeError):  # not JSON, not UTF-8, or JSON of another shape
        _set_aside(path)
    except OSError:  # not there yet, or not readable
        pass
    return empty


def record(field: str, key: str, value: Any) -> None:
    """Set one entry, e.g. `record("solved", "03.slot", True)`, and write the file in one piece.

    Raises ValueError for a field that does not exist. A disk that refuses is reported on stderr.
    """
    if field not in FIELDS:
        raise ValueError(f"field is {field!r}; allowed: {', '.join(FIELDS)}")
    everything = load()
    everything[field][key] = value
    path = home() / "progress.json"
    fresh = path.with_suffix(f".{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(everything, indent=1, sort_keys=True), encoding="utf-8")
        fresh.replace(path)  # readers see the old file or the new one, never half of it
    except OSError as error:
        print(
            f"your progress could not be saved ({error}); set MINIVLLM_HOME to a writable folder",
            file=sys.stderr,
        )


def _plain(entries: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if isinstance(value, str | int | float)}


def _set_aside(path: Path) -> None:
    aside = path.with_suffix(".json.damaged")
    try:
        path.replace(aside)
        print(f"{path.name} could not be read; it is now {aside.name}, and a new one was begun", file=sys.stderr)
    except OSError:
        pass
