"""Every figure leads to its list, and the list holds as many."""

from __future__ import annotations

import html
import re

from django.test import Client

_LINK = re.compile(r'<a[^>]*href="(/\?q=[^"]+)"[^>]*>(?:<strong>)?([\d,]+)(?: attempts?)?(?:</strong>)?</a>')


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
