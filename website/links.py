"""The links of a built site that lead nowhere. mkdocs looks after those in Markdown; these are all
that a browser finds, in HTML that was made elsewhere too."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# A server shows it at any address, so that its links begin at the root.
NOT_FOUND = "404.html"


class _Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag is called and where it leads."""
        given = dict(attrs)
        self.anchors |= {given[key] or "" for key in ("id", "name") if key in given}
        self.links |= {given[key] or "" for key in ("href", "src") if key in given}


def dead(site: Path) -> list[str]:
    """Every link within the site whose file or anchor is not there, with its page."""
    pages = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            address = urlsplit(link)
            if address.scheme or address.netloc or path.name == NOT_FOUND:
                continue
            to = path
            if address.path:
                to = Path(path.parent, unquote(address.path)).resolve()
            to = to / "index.html" if to.is_dir() else to
            anchors = pages[to].anchors if to in pages else None
            missing = anchors is not None and unquote(address.fragment) not in {"", *anchors}
            if missing or not to.exists():
                found.append(f"{path.relative_to(site)}: {link}")
    return found
