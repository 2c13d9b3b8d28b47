"""A real JupyterLab and a real browser, for the tests of the widgets.

`Server` is one JupyterLab with folders of its own: no setting of the user comes in, nothing is left behind.
`Page` is one notebook opened in it, a copy, with what a test needs: run the cells, ask the kernel, take a
picture.
Every page records script errors and requests that leave this machine; `Page.close` fails on either.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser

from minivllm.lab.build import METADATA

REPOSITORY = Path(__file__).parents[2]
SHOTS = Path(__file__).parent / "shots"
START_TIMEOUT_S = 60
PAGE_TIMEOUT_MS = 60_000
APPUTILS = "lab/user-settings/@jupyterlab/apputils-extension"

KERNEL_IS_IDLE = """() => {
  const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
  return context?.session?.kernel?.status === 'idle';
}"""

RUN_ALL = """async () => {
  const {commands} = window.jupyterapp;
  await commands.execute('notebook:clear-all-cell-outputs');
  await commands.execute('notebook:run-all-cells');
}"""

ERRORS_IN_OUTPUTS = """() => {
  const cells = [...window.jupyterapp.shell.currentWidget.content.model.cells];
  return cells.flatMap(cell => cell.type === 'code' ? cell.outputs.toJSON() : [])
    .filter(output => output.output_type === 'error').map(output => `${output.ename}: ${output.evalue}`);
}"""

EXECUTE = """async code => {
  const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const future = kernel.requestExecute({code, store_history: false});
  let text = '';
  future.onIOPub = message => { if (message.header.msg_type === 'stream') text += message.content.text; };
  const reply = await future.done;
  const {status, ename, evalue} = reply.content;
  return {text, error: status === 'ok' ? null : `${ename}: ${evalue}`};
}"""

CHANGE_THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"


class Server:
    """One JupyterLab on a free port, serving copies of the course below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.log = folder / "jupyter.log"
        (self.root / "course").mkdir(parents=True)
        if (REPOSITORY / "assets").exists():
            shutil.copytree(REPOSITORY / "assets", self.root / "assets")
        self._write_settings(folder / "config" / APPUTILS)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = os.environ | {
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "IPYTHONDIR": str(folder / "ipython"),
            "MINIVLLM_HOME": str(folder / "home"),
        }
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
            *(f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.root}"),
            *("--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.disable_check_xsrf=True"),
            "--LabApp.expose_app_in_browser=True",
        ]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._wait()

    def _write_settings(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        news = {"fetchNews": "false", "checkForUpdates": False}
        theme = {"theme": "JupyterLab Light", "adaptive-theme": False}
        (folder / "notification.jupyterlab-settings").write_text(json.dumps(news))
        (folder / "themes.jupyterlab-settings").write_text(json.dumps(theme))

    def _wait(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self.ask("/api/status")
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
            else:
                return
        self.close()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()[-3000:]}")

    def ask(self, path: str, method: str = "GET") -> Any:
        """What the server answers on `path`, from JSON."""
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def copy_of(self, chapter: str) -> str:
        """Copy `course/<chapter>.ipynb` ("03" will do) below the root; returns its path for `open`."""
        (source,) = (REPOSITORY / "course").glob(f"{chapter}*.ipynb")
        shutil.copy(source, self.root / "course" / source.name)
        return f"course/{source.name}"

    def notebook_of(self, name: str, cells: list[str]) -> str:
        """Write a notebook with these code cells below the root; returns its path for `open`."""
        made = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook = nbformat.v4.new_notebook(cells=made, metadata=METADATA)
        nbformat.write(notebook, self.root / "course" / f"{name}.ipynb")
        return f"course/{name}.ipynb"

    def stop_kernels(self) -> None:
        """A kernel that outlives its page would be handed to the next page of the same path."""
        for session in self.ask("/api/sessions"):
            self.ask(f"/api/sessions/{session['id']}", method="DELETE")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def eventually(check: Callable[[], None], seconds: float = 15.0) -> None:
    """Repeat `check` until it raises no AssertionError: browser and kernel tell each other by messages that take a while."""
    end = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


class Page:
    """One notebook, open in JupyterLab with its kernel ready. `page` is playwright's own page object."""

    def __init__(self, server: Server, browser: Browser, path: str, width: int = 1400, height: int = 1000) -> None:
        self.server = server
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
        self.page.set_default_timeout(PAGE_TIMEOUT_MS)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: line.type == "error" and self.errors.append(line.text))
        self.page.on("request", self._note)
        self.page.goto(f"{server.url}/lab/tree/{path}?reset")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_function(KERNEL_IS_IDLE)

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.server.url, self.server.url.replace("http", "ws"), "data:", "blob:")):
            self.outside.append(request.url)

    def run_all(self) -> None:
        """Clear what was saved, run every cell, and fail if one raised. Wait for a widget before using it."""
        self.page.evaluate(RUN_ALL)
        raised = self.page.evaluate(ERRORS_IN_OUTPUTS)
        assert not raised, raised

    def python(self, code: str) -> str:
        """What `code` prints in the notebook's kernel; fails if it raises."""
        answer = self.page.evaluate(EXECUTE, code)
        assert answer["error"] is None, answer["error"]
        return str(answer["text"]).rstrip("\n")

    def screenshot(self, name: str, selector: str | None = None, dark: bool = False) -> Path:
        """A picture of the page, or of the first match of `selector`: shots/<name>-light.png or -dark.png."""
        SHOTS.mkdir(exist_ok=True)
        target = SHOTS / f"{name}-{'dark' if dark else 'light'}.png"
        if dark:
            self._theme("JupyterLab Dark", "false")
        if selector:
            self.page.locator(selector).first.screenshot(path=target)
        else:
            self.page.screenshot(path=target)
        if dark:
            self._theme("JupyterLab Light", "true")
        return target

    def _theme(self, theme: str, is_light: str) -> None:
        self.page.evaluate(CHANGE_THEME, theme)
        self.page.wait_for_selector(f"body[data-jp-theme-light={is_light}]", state="attached")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")  # shown while it changes

    def close(self) -> None:
        """Close page and kernel; fail if the page had script errors or asked the network for anything."""
        self.page.close()
        self.server.stop_kernels()
        assert not self.errors, f"the page reported: {self.errors}"
        assert not self.outside, f"the page asked other machines: {self.outside}"
