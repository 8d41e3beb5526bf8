"""Bodies that are read as they come: the parser only says that their content type is welcome."""

from __future__ import annotations

from typing import Any

from rest_framework.parsers import BaseParser


class RawParser(BaseParser):
    """Any content type; the view reads the request itself."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        return {}
