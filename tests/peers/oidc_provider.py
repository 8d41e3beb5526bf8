"""A real OpenID Connect provider, Canaille, with people in memory; run by the Python that it is installed in.

`oidc_provider.py PORT REDIRECT_URI`, with people as JSON on standard input: {"ada": {"groups": ["gpu"], "name": "A"}}.
"""

import json
import sys

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from joserfc.jwk import RSAKey

PASSWORD = "correct horse battery"


def main() -> None:
    port, redirect_uri = int(sys.argv[1]), sys.argv[2]
    people = json.load(sys.stdin)
    key = RSAKey.generate_key(2048, auto_kid=True).as_dict(private=True)
    app = create_app(
        {
            "SECRET_KEY": "only here",
            "SERVER_NAME": f"127.0.0.1:{port}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE": {
                "DATABASE": "memory",
                "LOGGING": None,
                "ACL": {"DEFAULT": {"PERMISSIONS": ["use_oidc"], "READ": ["user_name", "groups"]}},
            },
            "CANAILLE_OIDC": {"ACTIVE_JWKS": [key], "REQUIRE_NONCE": False},
        }
    )
    with app.app_context():
        save = Backend.instance.save
        members: dict[str, list] = {}
        for name, facts in people.items():
            user = models.User(
                user_name=name, given_name=facts["name"], family_name=name, formatted_name=facts["name"],
                emails=[f"{name}@example.org"], password=PASSWORD,
            )  # fmt: skip
            save(user)
            for group in facts["groups"]:
                members.setdefault(group, []).append(user)
        for group, users in members.items():
            save(models.Group(display_name=group, members=users))
        client = models.Client(
            client_id="faultline", client_secret="not secret here", client_name="Faultline", contacts=[],
            client_uri="http://testserver/", redirect_uris=[redirect_uri], grant_types=["authorization_code"],
            response_types=["code"], scope=["openid", "profile", "email", "groups"],
            token_endpoint_auth_method="client_secret_basic",
        )  # fmt: skip
        save(client)
        client.audience = [client]
        save(client)
    app.run("127.0.0.1", port, threaded=True)


if __name__ == "__main__":
    main()
