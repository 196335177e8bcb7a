"""A real browser for the pages, driven by Playwright: the Chromium of the machine where there is
one, else the one Playwright keeps. Tests that want it skip with the reason where there is none."""

import os
import shutil

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser():
    """One headless browser for a session, with a profile of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("BITFRONT_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    with playwright.sync_playwright() as driver:
        try:
            opened = driver.chromium.launch(executable_path=found, args=FLAGS, headless=True)
        except playwright.Error as error:
            pytest.skip(f"no browser starts here: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


class Watched:
    """A page, with what went wrong in it and what it asked of the network."""

    def __init__(self, page):
        self.page = page
        self.errors = []
        self.requests = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    @property
    def remote(self):
        """Requests that left the page: its own file, data and blobs are none."""
        own = ("file:", "data:", "blob:", "about:")
        return [url for url in self.requests if not url.startswith(own)]


@pytest.fixture
def open_page(browser):
    """Opens an address in a fresh window: `open_page(url, width=400, dark=True)`."""
    contexts = []

    def open_(url, width=1100, height=800, dark=False):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.set_default_timeout(20_000)
        watched.page.goto(str(url))
        return watched

    yield open_
    for context in contexts:
        context.close()
