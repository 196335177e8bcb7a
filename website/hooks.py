"""What mkdocs calls while it builds the site (`hooks` in mkdocs.yml)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from website import drawings, links, reference, zoo
from website.sources import FILES, OUTSIDE, ROOT, as_page, linked_files

# What a browser would ask another host for as soon as it shows a page.
ASKS = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'>]+"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^\"'>]+"
    r"|(?:url\(|@import )[\"']?(?:https?:)?//[^\"')]+",
)


def on_config(config: Any) -> Any:
    """Put the pages of methods, which no list names, into the navigation."""
    for section in config.nav:
        for title, pages in section.items():
            if "METHODS" in pages:
                at = pages.index("METHODS")
                section[title] = [*pages[:at], *zoo.navigation(), *pages[at + 1 :]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what does not lie in docs/: other pages of the repository, pages and drawings made from
    the code, and files that pages link to."""
    made = {place: (ROOT / source).read_text() for place, source in OUTSIDE.items()}
    sources = dict(OUTSIDE)
    for file in list(files.documentation_pages()):
        sources[file.src_uri] = f"docs/{file.src_uri}"
    linked: set[str] = set()
    for source in sources.values():
        linked |= linked_files((ROOT / source).read_text(), source)
    made |= zoo.pages() | reference.pages() | {"site.css": drawings.STYLE}
    made["iframe-worker.js"] = (ROOT / "website" / "iframe-worker.js").read_text()
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    for name in sorted(linked):
        path = str(ROOT / name)
        files.append(File.generated(config, f"{FILES}/{name}", abs_src_path=path))
    return files


def on_page_markdown(markdown: str, page: Any, **_given: Any) -> str:
    """The text of a file of the repository, with the links of the site."""
    place = page.file.src_uri
    source = OUTSIDE.get(place, f"docs/{place}")
    if not (ROOT / source).is_file():
        return markdown
    text = as_page(markdown, source, place)
    return zoo.linked(text) if place == "catalog.md" else text


def on_post_build(config: Any) -> None:
    """Refuse a site that asks other hosts for anything, or has a link that leads nowhere."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in {".html", ".css"}:
            asked = ASKS.search(path.read_text())
            if asked is not None:
                raise PluginError(f"{path.relative_to(config.site_dir)} asks for {asked.group()}")
    dead = links.dead(Path(config.site_dir).resolve())
    if dead:
        raise PluginError("links that lead nowhere:\n" + "\n".join(dead))
