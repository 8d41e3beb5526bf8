"""What the Kubernetes API refuses, in words that an operator can act on.

Error bodies are objects of kind Status: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.base import ConnectorError
from connectors.kube.config import KubeConfig
from connectors.refusals import Kind

_TEMPORARY = {Kind.DOWN, Kind.SLOW, Kind.BUSY, Kind.SERVER}
_GUIDE = "docs/connectors/kueue.md has the roles that Faultline needs"


class KubeError(ConnectorError):
    """A request failed. `reason` is the API's own word, e.g. Forbidden; `continue_` the token that a 410 gives."""

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        detail: str = "",
        continue_: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, temporary=kind in _TEMPORARY)
        self.kind, self.status, self.reason, self.detail = kind, status, reason, detail
        self.continue_, self.retry_after = continue_, retry_after

    @property
    def gone(self) -> bool:
        """The object isn't there."""
        return self.status == 404

    @property
    def expired(self) -> bool:
        """The resource version or the continue token is too old: list anew."""
        return self.status == 410


def refused(config: KubeConfig, asked: str, status: int, body: str, headers: Mapping[str, str] | None) -> KubeError:
    """An answer other than 200, in words. `asked`: e.g. `list pods in research`."""
    fields = status_fields(body)
    reason, detail = str(fields.get("reason") or ""), _words(str(fields.get("message") or body))
    said = f"HTTP {status}: {detail}" if detail else f"HTTP {status}"
    meta = fields.get("metadata")
    token = str(meta.get("continue") or "") if isinstance(meta, dict) else ""

    def error(kind: Kind, message: str, retry_after: float | None = None) -> KubeError:
        return KubeError(
            kind, message, status=status, reason=reason, detail=detail, continue_=token, retry_after=retry_after
        )

    if status == 401:
        return error(
            Kind.DENIED,
            f"Kubernetes does not accept the login ({said}): the token or certificate of {config.login} is not valid "
            "or has run out",
        )
    if status == 403:
        return error(Kind.DENIED, f"Kubernetes does not allow to {asked} ({said}): {_GUIDE}")
    if status == 404:
        return error(Kind.ELSEWHERE, f"{asked}: not there ({said})")
    if status == 410:
        return error(Kind.REJECTED, f"{asked}: too old ({said})")
    if status == 429:
        return error(Kind.BUSY, f"Kubernetes has too many requests ({said})", _seconds(headers, fields))
    if 300 <= status < 400:
        return error(
            Kind.ELSEWHERE,
            f"the address in {config.login} redirects (HTTP {status}): set server to the API itself, not to a login "
            "page in front of it",
        )
    if status >= 500:
        return error(Kind.SERVER, f"Kubernetes failed to {asked} ({said})", _seconds(headers, fields))
    return error(Kind.REJECTED, f"Kubernetes rejects to {asked} ({said})")


def untrusted(config: KubeConfig, words: str) -> KubeError:
    """The TLS handshake failed."""
    if "CERTIFICATE_VERIFY_FAILED" in words:
        why = "its certificate is not trusted: set certificate-authority-data of the cluster"
    elif "WRONG_VERSION_NUMBER" in words or "HTTP_REQUEST" in words:
        why = "it does not speak TLS: check server"
    else:
        why = f"no secure connection: {_words(words)[:160]}"
    return KubeError(Kind.TLS, f"Kubernetes at the address in {config.login}: {why}")


def status_fields(body: str) -> dict[str, Any]:
    """A Status object; {} for anything else."""
    try:
        fields = msgspec.json.decode(body.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) and fields.get("kind") == "Status" else {}


def _seconds(headers: Mapping[str, str] | None, fields: Mapping[str, Any]) -> float | None:
    """Retry-After, or the Status' own retryAfterSeconds."""
    details = fields.get("details")
    said = (headers or {}).get("Retry-After") or (
        details.get("retryAfterSeconds") if isinstance(details, dict) else None
    )
    try:
        return max(float(said), 0.0) if said is not None else None
    except ValueError:
        return None


def _words(text: str) -> str:
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= 300 else words[:300] + "..."
