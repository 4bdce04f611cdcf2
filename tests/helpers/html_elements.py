"""The elements of an HTML page that a command prints."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """A page's elements, each closed where it must be, and its text."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self._rows: list[list[str]] = []

    def rows(self) -> list[list[str]]:
        """Return the cells of each row of the page's tables."""
        return [row for row in self._rows if row]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attrs} & {"src", "href", "onload"}
        self.tags.append(tag)
        if tag == "tr":
            self._rows.append([])
        elif tag == "td":
            self._rows[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open[-1:] == ["td"]:
            self._rows[-1][-1] += data
