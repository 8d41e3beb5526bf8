"""Every figure leads to its list, and the list holds as many."""

from __future__ import annotations

import html
import re

from django.test import Client

_LINK = re.compile(
    r'<a[^>]*href="(/\?q=[^"]+)"[^>]*>(?:<strong>)?([\d,]+)(?: attempts?)?'
    r'(?:</strong>)?(?:<span class="sub">[^<]*</span>)?</a>'
)


def followed(client: Client, page: str) -> int:
    """Follows each count of a page that is a link to a list, and says how many there were. Hours lead to lists too,
    which are ordered by them.
    """
    links = {
        (html.unescape(url), int(text.replace(",", ""))) for url, text in _LINK.findall(page) if "sort=" not in url
    }
    for url, count in links:
        shown = client.get(url).content.decode()
        found = re.search(r'<p class="soft">([\d,]+) attempts?', shown)
        assert found and int(found[1].replace(",", "")) == count, (url, count, found and found[0])
    return len(links)


def unlinked(page: str) -> list[str]:
    """Figures in cells of numbers that lead nowhere; naught has no list, and a line below says how a figure changed."""
    cells = re.findall(r'<td class="num"[^>]*>(.*?)</td>', page, re.DOTALL)
    bare = [re.sub(r'<a .*?</a>|<span class="sub">.*?</span>|<[^>]*>', "", cell).strip() for cell in cells]
    return [text for text in bare if re.search(r"[1-9]", text)]
