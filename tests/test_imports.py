"""The import law: each layer may use those below it, never those above; core is pure Python; no circles."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "minivllm"

# Lowest first; modules of one layer may use each other.
LAYERS = [
    {
        "allowed",
        "config",
        "request",
        "events",
        "snapshot",
        "recorder",
        "narrate",
        "output",
        "detokenizer",
    },  # plain data
    {"core"},
    {"kernels"},
    {"model"},
    {"runtime"},
    {"engine", "books", "assembly", "intake", "results", "picture"},  # the engine and its parts
    {"llm"},
    {"metrics", "eventlog"},  # from here on: observers, which nothing below may know
    {"bench"},
    {"lab"},
    {"viz"},  # the views draw what the lab traces
    {"commands"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
HEAVY = {"torch", "triton", "numpy", "transformers"}


def modules() -> dict[str, Path]:
    """Dotted name -> file, for every module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, path: Path, nested: bool) -> set[str]:
    """Dotted names that a module imports; with `nested`, also inside functions and `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = set()
    for node in ast.walk(tree) if nested else tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


MODULES = modules()


def layer(module: str) -> str:
    return module.split(".")[1]


@pytest.mark.parametrize("module", [name for name in MODULES if name != "minivllm"])
def test_a_module_uses_only_layers_below_its_own(module):
    assert layer(module) in RANK, f"say in {Path(__file__).name} where minivllm/{layer(module)} belongs"
    used = {name for name in imports(module, MODULES[module], nested=True) if name in MODULES and name != "minivllm"}
    upward = sorted(name for name in used if RANK[layer(name)] > RANK[layer(module)])
    assert not upward, f"{module} imports {', '.join(upward)}, which stand above it"


def test_no_module_imports_itself_through_others():
    graph = {
        module: {name for name in imports(module, path, nested=False) if name in MODULES} - {module, "minivllm"}
        for module, path in MODULES.items()
    }
    # `from package import module` also names the package; a package that re-exports its modules is no circle.
    graph = {module: {name for name in used if not module.startswith(f"{name}.")} for module, used in graph.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("a circle of imports: " + " -> ".join(error.args[1]))


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("minivllm.core")])
def test_core_is_pure_python(module):
    heavy = {name.split(".")[0] for name in imports(module, MODULES[module], nested=True)} & HEAVY
    assert not heavy, f"{module} imports {', '.join(sorted(heavy))}"


def test_core_can_be_imported_where_torch_is_not_installed():
    core = [name for name in MODULES if name.startswith("minivllm.core")]
    program = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({sorted(HEAVY)!r}))  # an import of these now raises ImportError
for name in {core!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
