"""Ways out: Slack, e-mail, signed webhooks, Alertmanager, and whatever Apprise reaches. One shape for all."""
