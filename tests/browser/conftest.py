"""Fixtures of the browser tests: `open_chapter("03")` and `open_cells("name", [source, …])` give a `Page`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_page import Page, Server
from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
CHROMIUM_OPTIONS = [
    "--no-sandbox",  # needed as root, in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("lab"))
    yield running
    running.close()


@pytest.fixture(scope="module")  # not longer: playwright's event loop would stand in the way of other tests
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_OPTIONS)
        yield running
        running.close()


@pytest.fixture
def pages() -> Iterator[list[Page]]:
    """Pages that a test opened; closed, and thereby checked, when it ends."""
    opened: list[Page] = []
    yield opened
    for page in opened:
        page.close()


@pytest.fixture
def open_chapter(server: Server, browser: Browser, pages: list[Page]) -> Callable[..., Page]:
    """Open a copy of a chapter: `open_chapter("03", width=800)`."""

    def open_copy(chapter: str, **size: int) -> Page:
        pages.append(Page(server, browser, server.copy_of(chapter), **size))
        return pages[-1]

    return open_copy


@pytest.fixture
def open_cells(server: Server, browser: Browser, pages: list[Page]) -> Callable[..., Page]:
    """Open a notebook made of these cells: `open_cells("button", ["import …", "view"])`."""

    def open_made(name: str, cells: list[str], **size: int) -> Page:
        pages.append(Page(server, browser, server.notebook_of(name, cells), **size))
        return pages[-1]

    return open_made
