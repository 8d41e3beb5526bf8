"""API tokens: made, recognised, revoked. The token itself is shown once and never kept."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from triage.models import ApiToken, Scope
from triage.services.facts import short

MARK = "flt_"
"""How every token begins, so that scanners for leaked secrets recognise one."""
_USED_EVERY = timedelta(minutes=1)


class TokenRefused(ValueError):
    """A token can't be made so; one line."""


@transaction.atomic
def create_token(
    user: AbstractBaseUser, name: str, scopes: Sequence[str], *, expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """A new token and its secret, which can't be had again. Raises TokenRefused."""
    unknown = sorted(set(scopes) - set(Scope.values))
    if unknown:
        raise TokenRefused(f"scope {unknown[0]!r} is not one of {', '.join(Scope.values)}")
    if not scopes:
        raise TokenRefused(f"at least one scope is needed: {', '.join(Scope.values)}")
    if not name.strip():
        raise TokenRefused("a name is needed: what the token is for")
    if expires_at is not None and expires_at <= timezone.now():
        raise TokenRefused("the expiry lies in the past")
    secret = MARK + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=short(name.strip(), 100),
        prefix=secret[:12],
        digest=_digest(secret),
        scopes=[scope for scope in Scope.values if scope in scopes],
        expires_at=expires_at,
    )
    return token, secret


def find_token(secret: str) -> ApiToken | None:
    """The token with that secret, when it is valid now; notes that it was used."""
    if not secret.startswith(MARK) or len(secret) > 200:
        return None
    now = timezone.now()
    valid = Q(revoked_at__isnull=True) & (Q(expires_at__isnull=True) | Q(expires_at__gt=now))
    token = ApiToken.objects.select_related("user").filter(valid, digest=_digest(secret), user__is_active=True).first()
    if token is not None and (token.last_used_at is None or token.last_used_at < now - _USED_EVERY):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def revoke_token(token_id: int) -> bool:
    """Ends a token at once. False when there is none, or it was revoked before."""
    return bool(ApiToken.objects.filter(pk=token_id, revoked_at__isnull=True).update(revoked_at=timezone.now()))


def _digest(secret: str) -> str:
    """A plain hash is enough: a token has 256 random bits, so there is nothing to guess."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
