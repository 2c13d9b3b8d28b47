"""Joins small ES modules into the one module that anywidget loads: local files only, no build step, no network."""

import json
import re
from functools import cache
from pathlib import Path

from minivllm.viz import palette
from minivllm.viz.glyphs import GLYPHS

HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import [^;]*? from "\./(\w+)\.js";\n', re.MULTILINE)


@cache
def module(name: str) -> str:
    """`name.js` with every local import put in front of it, each file once; `GLYPHS` comes from Python.

    Raises `FileNotFoundError` for a file that is not there and `ValueError` for an import that is not local.
    """
    parts: dict[str, str] = {}

    def visit(file: str) -> None:
        if file in parts:
            return
        source = (HERE / f"{file}.js").read_text(encoding="utf-8")
        for needed in _IMPORT.findall(source):
            visit(needed)
        body = _IMPORT.sub("", source)
        if re.search(r"^import ", body, re.MULTILINE):
            raise ValueError(f'{file}.js imports something that is not `import … from "./name.js";`')
        parts[file] = body if file == name else re.sub(r"^export (?!default)", "", body, flags=re.MULTILINE)

    visit(name)
    return f"const GLYPHS = {json.dumps(GLYPHS)};\n" + "\n".join(parts.values())


@cache
def css(*names: str) -> str:
    """The palette's variables, then each `name.css`."""
    return palette.css() + "\n".join((HERE / f"{name}.css").read_text(encoding="utf-8") for name in names)
