"""How every test and every notebook runs: offline, on one thread, with a progress file of its own.

Three things must hold wherever `pytest` is started from:
- `pytest --nbval course/` needs no further options (kernel, sanitizers and timeout are set here);
- kernels inherit the environment set below, so a notebook under test and its committed outputs agree;
- without a GPU, Triton kernels run in Triton's interpreter, which must be chosen before triton is imported.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from minivllm.lab.reproducible import gpu_is_visible, settle

ROOT = Path(__file__).parent
CELL_TIMEOUT_S = 120
NBVAL_DEFAULT_TIMEOUT_S = 2000

# Before anything else is imported; a notebook's kernel gets a home of its own in pytest_runtest_setup.
HOME = Path(tempfile.mkdtemp(prefix="minivllm-test-"))
settle(HOME)


def pytest_configure(config: pytest.Config) -> None:
    """Give nbval the settings that `pytest --nbval course/` should need no options for."""
    option = config.option
    if hasattr(option, "nbval"):  # nbval is installed
        option.nbval_current_env = not option.nbval_kernel_name
        if option.nbval_sanitize_with is None:
            option.nbval_sanitize_with = str(ROOT / "tests" / "nbval_sanitize.cfg")
        if option.nbval_cell_timeout == NBVAL_DEFAULT_TIMEOUT_S:
            option.nbval_cell_timeout = CELL_TIMEOUT_S
        _start_kernels_twice_if_need_be()


def _start_kernels_twice_if_need_be() -> None:
    """Kernels that start side by side pick free ports and bind them a moment later. Now and then a port is taken by then,
    and the kernel dies before it says a word."""
    from nbval import kernel

    once = kernel.start_new_kernel

    def start(*args: Any, **options: Any) -> Any:
        try:
            return once(*args, **options)
        except RuntimeError:
            return once(*args, **options)

    kernel.start_new_kernel = start


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A notebook starts with no predictions and nothing solved, as it was built: its kernel inherits this."""
    if type(item).__module__.startswith("nbval"):
        os.environ["MINIVLLM_HOME"] = str(HOME / item.path.stem)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this machine cannot run, and say so: a skip would hide it among the dots."""
    absent = {}
    if not gpu_is_visible():
        absent["gpu"] = "GPU tests did not run: no CUDA GPU is visible here."
    if any(item.get_closest_marker("browser") for item in items) and find_chromium() is None:
        absent["browser"] = (
            "Browser tests did not run: no Chromium was found. Get one: `apt-get install chromium` (Debian), "
            "`brew install --cask chromium` (macOS) or `.venv/bin/python -m playwright install chromium`, "
            "or name yours in CHROMIUM=/path/to/chrome."
        )
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in absent)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    config.minivllm_notices = [
        text for name, text in absent.items() if any(item.get_closest_marker(name) for item in left_out)
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for notice in getattr(config, "minivllm_notices", []):
        terminalreporter.write_line(notice, yellow=True)


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome ($CHROMIUM, PATH, the usual macOS places, playwright's own), or None."""
    named = os.environ.get("CHROMIUM")
    if named:
        found = shutil.which(named)
        if found is None:
            raise pytest.UsageError(f"CHROMIUM={named} is not a program; unset it or give a browser's path")
        return found
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"):
        if found := shutil.which(name):
            return found
    places = [
        Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
        Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
    ]
    if sys.platform == "darwin":
        cache = Path.home() / "Library/Caches/ms-playwright"
    else:
        cache = Path.home() / ".cache/ms-playwright"
    places += sorted(cache.glob("chromium-*/chrome-*/chrome"), reverse=True)
    places += sorted(cache.glob("chromium-*/chrome-*/*.app/Contents/MacOS/*"), reverse=True)
    return next((str(place) for place in places if place.exists()), None)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser of the browser tests, which are left out where there is none."""
    found = find_chromium()
    assert found is not None
    return found
