"""A headless Chromium of this machine, which is asked for nothing but files."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find() -> str | None:
    """The browser's program, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def install() -> str | None:
    """Install Chromium where it is missing. The reason why that cannot be done, or None."""
    if find():
        return None
    done = subprocess.run(["bash", HERE / "install.sh"], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    lines = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
    return f"tests/browser/install.sh failed: {lines[-1]}"


@contextmanager
def running() -> Iterator[Browser]:
    """The browser, until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page that keeps what it asked for, and what went wrong on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.context.set_offline(True)

    def open(self, path: Path) -> "Watched":
        """Open a file, and wait until all of it is drawn."""
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=120_000)
        return self

    def _on_console(self, message) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)
