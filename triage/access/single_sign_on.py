"""Sign-in by OpenID Connect: who is let in, with which role and teams, by the groups that the provider tells.

django-allauth speaks the protocol. What the groups mean is configured (docs/access.md), and applied at each sign-in.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NoReturn

from allauth.account.signals import user_logged_in
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest
from django.shortcuts import render

from triage.access.roles import Role
from triage.models import Person

logger = logging.getLogger(__name__)
MAX_GROUPS = 1000


class Adapter(DefaultSocialAccountAdapter):
    """Makes an account for whoever the provider vouches for and the configuration lets in; never joins it with a local
    account of the same name or address.
    """

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        if sociallogin.state.get("process") not in (None, "login"):
            _refuse(request, "Only signing in is possible here.")
        if sociallogin.is_existing and not sociallogin.user.is_active:
            _refuse(request, "Your account is closed. Ask whoever runs Faultline here.")
        if role_by_groups(groups_of(sociallogin)) is None and settings.FAULTLINE_OIDC_ROLES:
            logger.warning("sign-in refused: no group of %s has a role", sociallogin.account.uid)
            _refuse(request, "None of your groups has a role in Faultline. Ask whoever runs it here.")

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        why = [str(part) for part in (exception, getattr(exception, "__cause__", None)) if part]
        logger.warning("sign-in by OpenID Connect failed: %s", ": ".join(why) or error)
        _refuse(request, "Signing in did not work. Try again; if it stays, ask whoever runs Faultline here.", 502)


def groups_of(sociallogin: SocialLogin) -> list[str]:
    """What the provider says; the user info counts before the token."""
    told = sociallogin.account.extra_data
    for part in (told.get("userinfo"), told.get("id_token"), told):
        claim = part.get(settings.FAULTLINE_OIDC_GROUPS_CLAIM) if isinstance(part, dict) else None
        if isinstance(claim, str):
            return [claim]
        if isinstance(claim, list):
            return [group for group in claim if isinstance(group, str)][:MAX_GROUPS]
    return []


def role_by_groups(groups: Iterable[str]) -> Role | None:
    """The highest that any group has; else the one for people in no such group; None: not let in."""
    found = [Role(role) for role in (settings.FAULTLINE_OIDC_ROLES.get(group) for group in groups) if role]
    if found:
        return max(found, key=lambda role: role.level)
    return Role(settings.FAULTLINE_OIDC_ROLE) if settings.FAULTLINE_OIDC_ROLE else None


@transaction.atomic
def apply_groups(user: User, groups: Iterable[str]) -> None:
    """Gives a user the role and the teams of their groups, and takes what they no longer have. Teams that no group
    stands for are left as they are.
    """
    groups = list(groups)
    role = role_by_groups(groups)
    if role is not None and (settings.FAULTLINE_OIDC_ROLES or not Person.objects.filter(user=user).exists()):
        Person.objects.update_or_create(user=user, defaults={"role": role})
    mapped = settings.FAULTLINE_OIDC_TEAMS
    named = {mapped[group] for group in groups if group in mapped}
    for team in Group.objects.filter(user=user, name__in=set(mapped.values()) - named):
        user.groups.remove(team)
    for name in sorted(named):
        user.groups.add(Group.objects.get_or_create(name=name)[0])


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: User, sociallogin: SocialLogin | None = None, **_: Any) -> None:
    if sociallogin is not None:
        apply_groups(user, groups_of(sociallogin))


def _refuse(request: HttpRequest, why: str, status: int = 403) -> NoReturn:
    raise ImmediateHttpResponse(render(request, "account/refused.html", {"why": why}, status=status))
