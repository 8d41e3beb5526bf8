"""`manage.py api_token create|list|revoke`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from triage.models import ApiToken, Scope
from triage.services.tokens import TokenRefused, create_token, revoke_token


class Command(BaseCommand):
    help = "Makes, lists and revokes API tokens. A new token is printed once."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="create|list|revoke")
        create = actions.add_parser("create", help="make a token and print it")
        create.add_argument("user", help="name of the user it acts for")
        create.add_argument("name", help="what it is for")
        create.add_argument("--scope", action="append", choices=Scope.values, default=[], help="can be repeated")
        create.add_argument("--days", type=int, default=90, help="days until it expires; 0: never (default: 90)")
        actions.add_parser("list", help="every token, without its secret")
        revoke = actions.add_parser("revoke", help="end a token at once")
        revoke.add_argument("id", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "create":
            self._create(**{key: options[key] for key in ("user", "name", "scope", "days")})
        elif options["action"] == "list":
            for token in ApiToken.objects.select_related("user"):
                self.stdout.write(_line(token))
        elif not revoke_token(options["id"]):
            raise CommandError(f"no valid token {options['id']}")

    def _create(self, user: str, name: str, scope: list[str], days: int) -> None:
        owner = User.objects.filter(username=user, is_active=True).first()
        if owner is None:
            raise CommandError(f"no active user {user!r}")
        expires_at = timezone.now() + timedelta(days=days) if days else None
        try:
            _, secret = create_token(owner, name, scope or [Scope.READ.value], expires_at=expires_at)
        except TokenRefused as error:
            raise CommandError(str(error)) from None
        self.stdout.write(secret)


def _line(token: ApiToken) -> str:
    if token.revoked_at:
        state = "revoked"
    else:
        state = f"until {token.expires_at:%Y-%m-%d}" if token.expires_at else "no expiry"
    used = f"used {token.last_used_at:%Y-%m-%d}" if token.last_used_at else "never used"
    words = [str(token.pk), f"{token.prefix}...", token.user.get_username(), ",".join(token.scopes)]
    return "\t".join([*words, state, used, token.name])
