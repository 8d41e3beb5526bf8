"""API tokens: made, recognised, revoked. The token itself is shown once and never kept."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from triage.access.roles import Role
from triage.access.viewer import viewer_of
from triage.models import ApiToken, Scope
from triage.services.facts import told

MARK = "flt_"
"""How every token begins, so that scanners for leaked secrets recognise one."""
DAYS = (7, 30, 90, 365)
DEFAULT_DAYS = 90
MAX_TOKENS = 50
"""Valid ones that one person makes for themselves."""
ROLES = {Scope.READ: Role.VIEWER, Scope.INGEST: Role.RESPONDER, Scope.WRITE: Role.RESPONDER}
"""Who may do what the scopes name; a token never may more than its user."""
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
        name=told(name.strip(), 100),
        prefix=secret[:12],
        digest=_digest(secret),
        scopes=[scope for scope in Scope.values if scope in scopes],
        expires_at=expires_at,
    )
    return token, secret


def open_to(user: User) -> list[Scope]:
    """The scopes that are of use to somebody in their role."""
    viewer = viewer_of(user)
    return [scope for scope in Scope if viewer.may(ROLES[scope])]


@transaction.atomic
def create_own_token(user: User, name: str, scopes: Sequence[str], *, days: int) -> tuple[ApiToken, str]:
    """A token for oneself, within one's role, that ends after `days`. Raises TokenRefused."""
    if days not in DAYS:
        raise TokenRefused(f"choose how long it is valid: {', '.join(map(str, DAYS))} days")
    missing = sorted(set(scopes) & set(Scope.values) - {scope.value for scope in open_to(user)})
    if missing:
        needed = ROLES[Scope(missing[0])].label.lower()
        raise TokenRefused(f"the scope {missing[0]} needs the role {needed} or one above it")
    User.objects.select_for_update().get(pk=user.pk)  # one at a time for each person
    if valid_tokens().filter(user=user).count() >= MAX_TOKENS:
        raise TokenRefused(f"{MAX_TOKENS} valid tokens are the most: revoke one first")
    return create_token(user, name, scopes, expires_at=timezone.now() + timedelta(days=days))


def valid_tokens() -> QuerySet[ApiToken]:
    """Those that are neither revoked nor expired."""
    expires = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    return ApiToken.objects.filter(expires, revoked_at__isnull=True)


def find_token(secret: str) -> ApiToken | None:
    """The token with that secret, when it is valid now; notes that it was used."""
    if not secret.startswith(MARK) or len(secret) > 200:
        return None
    now = timezone.now()
    token = valid_tokens().select_related("user").filter(digest=_digest(secret), user__is_active=True).first()
    if token is not None and (token.last_used_at is None or token.last_used_at < now - _USED_EVERY):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def revoke_token(token_id: int, *, user: AbstractBaseUser | None = None) -> bool:
    """Ends a token at once, with `user` only one of theirs. False when there is none, or it was revoked before."""
    found = ApiToken.objects.filter(pk=token_id, revoked_at__isnull=True)
    if user is not None:
        found = found.filter(user=user)
    return bool(found.update(revoked_at=timezone.now()))


def _digest(secret: str) -> str:
    """A plain hash is enough: a token has 256 random bits, so there is nothing to guess."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
