"""Check the built site: each link leads to a file and an anchor of it, and nothing comes from afar.

python -m tests.site_links site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_ADDRESSES: Final = {"a": "href", "link": "href", "script": "src", "img": "src"}
_LOADED: Final = {"script", "img"}
_STYLE: Final = {"stylesheet", "preload", "icon"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        address = given.get(_ADDRESSES.get(tag, ""))
        if not address:
            return
        loads = tag in _LOADED or given.get("rel") in _STYLE
        (self.loaded if loads else self.links).append(address)


def broken(site: Path) -> list[str]:
    """Every link that leads nowhere, and everything that is loaded from another host."""
    pages = {file: Page(file) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        here = file.relative_to(site)
        found += [f"{here} loads {url}" for url in page.loaded if urlsplit(url).netloc]
        for url in (*page.links, *page.loaded):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc or file.name == "404.html":
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            if not (target.is_file() and target.is_relative_to(site)):
                found.append(f"{here} links to {url}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{here} links to {url}, which has no such place")
    return found


if __name__ == "__main__":
    problems = broken(Path(sys.argv[1]).resolve())
    print("\n".join(problems) or "Every link of the site leads somewhere.")
    sys.exit(bool(problems))
