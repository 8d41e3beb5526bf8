"""Markdown of comments and reports as HTML that is safe to show: no HTML of its own, no pictures, no spying links.

Two barriers: the parser lets no HTML through, and a sanitiser keeps only the tags named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from triage.services.comments import MENTION
from triage.text import printable, readable

TAGS = {
    "a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_SPECIAL = re.compile(rf"(?P<url>https?://[^\s<>\"'`\x00-\x1f]+[^\s<>\"'`.,;:!?)\]])|{MENTION.pattern}")
_MARKUP = re.compile(r"[\\`*\[\]<>|~]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]|@")
_CHAT = re.compile(r"[\\`*\[\]<>]|(?<!\w)_|_(?!\w)")


def render(text: str, mentions: Iterable[str] = (), *, headings_from: int = 3) -> SafeString:
    """HTML of a Markdown text. `mentions` are the users that it really names; headings begin at `headings_from`."""
    return mark_safe(_render(text, frozenset(mentions), headings_from))  # nosec B308 B703: nh3 has cleaned it


def plain(text: Any, limit: int = 500) -> str:
    """Text of unknown origin for use inside Markdown: every character stands for itself, on one line."""
    return _MARKUP.sub(r"\\\g<0>", _one_line(text, limit))


def chat(text: Any, limit: int = 500) -> str:
    """The same for a chat, which knows less of Markdown and shows needless backslashes; it mentions nobody."""
    return _CHAT.sub(r"\\\g<0>", _one_line(text, limit)).replace("@", "@\u2060")


def _one_line(text: Any, limit: int) -> str:
    shown = " ".join(printable(str(text)).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "\u2026"


def code(text: Any, limit: int = 500) -> str:
    """The same as a code span; backticks inside it are kept."""
    shown = printable(str(text)).replace("|", "\u2502")
    shown = shown if len(shown) <= limit else shown[: limit - 1] + "\u2026"
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _text(
    renderer: Any, tokens: Sequence[Token], index: int, options: Any, environment: MutableMapping[str, Any]
) -> str:
    content = tokens[index].content
    if environment.get("links"):
        return str(escape(content))
    parts, end = [], 0
    for match in _SPECIAL.finditer(content):
        url, name = match["url"], (match[2] or "").rstrip(".-+@")
        if url is None and name not in environment["mentions"]:
            continue
        parts.append(escape(content[end : match.start()]))
        if url is not None:
            parts.append(f'<a href="{escape(url)}">{escape(url)}</a>')
            end = match.end()
        else:
            parts.append(f'<b class="mention">@{escape(name)}</b>')
            end = match.start() + 1 + len(name)
    parts.append(escape(content[end:]))
    return "".join(parts)


def _link_open(renderer: Any, tokens: Sequence[Token], index: int, options: Any, environment: Any) -> str:
    environment["links"] = environment.get("links", 0) + 1
    return str(renderer.renderToken(tokens, index, options, environment))


def _link_close(renderer: Any, tokens: Sequence[Token], index: int, options: Any, environment: Any) -> str:
    environment["links"] -= 1
    return "</a>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20})
    parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    parser.add_render_rule("text", _text)
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("link_close", _link_close)
    return parser


_PARSER = _parser()


@lru_cache(maxsize=1024)
def _render(text: str, mentions: frozenset[str], headings_from: int) -> str:
    shown = readable(text)
    environment = {"mentions": mentions}
    tokens = _PARSER.parse(shown, environment)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(4, int(token.tag[1]) - 1 + headings_from)}"
    html = _PARSER.renderer.render(tokens, _PARSER.options, environment)
    return nh3.clean(
        html,
        tags=TAGS,
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        allowed_classes={"b": {"mention"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )
