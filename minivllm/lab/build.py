"""Notebooks are built: `course/src/NN_name.py`, text in percent format, is run into `course/NN_name.ipynb`.

    python -m minivllm.lab.build [--check] [--no-run] [NAME ...]     # NAME: "03" or "03_block_tables"

The same source gives the same file: fixed cell ids, no widget state, no timestamps, widget models numbered in
order. `--check` builds in memory and says where the notebooks on disk differ; `--no-run` leaves the outputs
out, and with it a check takes milliseconds.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minivllm.lab.percent import parse
from minivllm.lab.reproducible import settle

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}
CELL_TIMEOUT_S = 600
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def unrun(source: Path) -> Any:
    """The notebook of a source file as it is before it runs: cells, ids and tags, no outputs."""
    try:
        cells = list(parse(source.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{source}, {error}") from error
    notebook = new_notebook(metadata=json.loads(json.dumps(METADATA)))
    for number, (kind, tags, text) in enumerate(cells):
        make = new_code_cell if kind == "code" else new_markdown_cell
        cell = make(text, id=f"cell-{number:03d}")
        if tags:
            cell.metadata["tags"] = tags
        notebook.cells.append(cell)
    return notebook


def run(notebook: Any, folder: Path) -> None:
    """Run all cells in a fresh kernel whose working directory is `folder`; the notebook gets the outputs."""
    with tempfile.TemporaryDirectory() as home:
        settle(Path(home))
        NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    notebook.metadata.pop("widgets", None)  # megabytes, and a reopened notebook does not use it
    notebook.metadata.update(json.loads(json.dumps(METADATA)))
    _number_widgets(notebook)


def _number_widgets(notebook: Any) -> None:
    """Model ids are random and mean nothing without their kernel: number them in order of appearance."""
    numbers: dict[str, str] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            view = output.get("data", {}).get(WIDGET_VIEW)
            if view:
                view["model_id"] = numbers.setdefault(view["model_id"], f"widget-{len(numbers):03d}")


def difference(built: Any, committed: Any, with_outputs: bool) -> str | None:
    """The first place where two notebooks differ, in words, or None; ignored outputs are not compared."""
    for number, (ours, theirs) in enumerate(zip(built.cells, committed.cells, strict=False)):
        if ours.source != theirs.source:
            return f"cell {number} has another source: {_first_lines(ours.source, theirs.source)}"
        if (ours.cell_type, ours.id, ours.metadata) != (theirs.cell_type, theirs.id, theirs.metadata):
            return f"cell {number} has another kind, id or tags"
        if with_outputs and "nbval-ignore-output" not in ours.metadata.get("tags", []):
            new, old = (_text(cell) for cell in (ours, theirs))
            if new != old:
                return f"cell {number} has another output: {_first_lines(new, old)}"
    if len(built.cells) != len(committed.cells):
        return f"{len(built.cells)} cells in the source, {len(committed.cells)} in the notebook"
    return "the notebook's metadata differ" if built.metadata != committed.metadata else None


def _text(cell: Any) -> str:
    return json.dumps(cell.get("outputs"), indent=1, ensure_ascii=False, sort_keys=True)


def _first_lines(new: str, old: str) -> str:
    pairs = zip([*new.splitlines(), "(end)"], [*old.splitlines(), "(end)"], strict=False)
    ours, theirs = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return f"now {ours.strip()!r}, committed {theirs.strip()!r}"


def main(arguments: list[str] | None = None, course: Path = Path("course")) -> int:
    """Build or check the named notebooks below `course`; returns 0, or 1 when one fails or differs."""
    parser = argparse.ArgumentParser(prog="python -m minivllm.lab.build", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help='"03" or "03_block_tables"; default: all')
    parser.add_argument("--check", action="store_true", help="compare with the notebooks on disk, write nothing")
    parser.add_argument("--no-run", action="store_true", help="do not run the cells, and leave outputs out")
    options = parser.parse_args(arguments)
    sources = sorted((course / "src").glob("[0-9][0-9]_*.py"))
    chosen = [one for one in sources if not options.names or one.stem in options.names or one.stem[:2] in options.names]
    if not chosen:
        parser.error(f"no source in {course / 'src'} is called {' or '.join(options.names) or 'NN_name.py'}")
    failed = False
    for source in chosen:
        target = course / f"{source.stem}.ipynb"
        trouble = _build(source, target, options.check, run_cells=not options.no_run)
        print(f"{target}: {trouble or ('as its source' if options.check else 'built')}")
        failed = failed or trouble is not None
    return int(failed)


def _build(source: Path, target: Path, check: bool, run_cells: bool) -> str | None:
    try:
        notebook = unrun(source)
        if run_cells:
            run(notebook, target.parent)
    except (ValueError, CellExecutionError) as error:
        return str(error)
    if not check:
        nbformat.validate(notebook)
        target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        return None
    if not target.exists():
        return "not built yet; run `make course`"
    found = difference(notebook, nbformat.read(target, as_version=4), with_outputs=run_cells)
    return f"{found}; run `make course`" if found else None


if __name__ == "__main__":
    sys.exit(main())
