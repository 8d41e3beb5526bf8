"""Answers are JSON, whatever a client says that it accepts."""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request


class JsonAlways(BaseContentNegotiation):
    """The first renderer; parsers are chosen by the content type as usual."""

    def select_parser(self, request: Request, parsers: list[Any]) -> Any:
        from rest_framework.negotiation import DefaultContentNegotiation

        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(self, request: Request, renderers: list[Any], format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type
