"""The official client, signed in by kubeconfig or as a pod's service account, with connections that can be cut."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import yaml

from connectors.base import ConnectorError
from connectors.http import cuttable_pools
from connectors.kube.config import KubeConfig

LOGIN_SECONDS = 30.0
"""For reading a kubeconfig, whose user may be a command (exec)."""
_LEADING_OUT = {
    "exec", "auth-provider", "tokenFile", "certificate-authority", "client-certificate", "client-key",
}  # fmt: skip
"""Keys of a kubeconfig that have a program run or another file read."""
_MOST_NODES = 100_000
_T = TypeVar("_T")
logging.getLogger("kubernetes").setLevel(logging.WARNING)  # it tells of each response at DEBUG, with secrets


def api_client(config: KubeConfig, held: list[socket.socket]) -> Any:
    """A `kubernetes.client.ApiClient` with one connection at a time, whose socket is in `held`.

    Raises ConnectorError.
    """
    from kubernetes import client  # takes a second to import, and only clusters that are configured need it

    settings: Any = client.Configuration()
    within(LOGIN_SECONDS, lambda: _sign_in(config, settings), f"signing in with {config.login}")
    hook = settings.refresh_api_key_hook
    if hook is not None:
        settings.refresh_api_key_hook = lambda fresh: within(
            LOGIN_SECONDS, lambda: hook(fresh), f"renewing the token of {config.login}"
        )
    settings.retries = False  # retried here, with limits
    settings.connection_pool_maxsize = 1
    api = client.ApiClient(settings)
    api.rest_client.pool_manager.pool_classes_by_scheme = cuttable_pools(
        held, config.reach, "Kubernetes"
    )  # a watchdog can cut them
    return api


def _sign_in(kube: KubeConfig, settings: Any) -> None:
    from kubernetes import config

    logins: Any = config
    if not kube.reach.is_everywhere and kube.kubeconfig is not None:
        _refuse_what_leads_out(kube)
    try:
        if kube.kubeconfig is None:
            logins.load_incluster_config(client_configuration=settings)
        else:
            logins.load_kube_config(
                config_file=str(kube.kubeconfig),
                context=kube.context,
                client_configuration=settings,
                persist_config=False,
            )
    except logins.ConfigException as error:
        words = " ".join(str(error).split())
        if kube.kubeconfig is None:
            hint = "set kubeconfig, or run Faultline in the cluster with a service account"
            raise ConnectorError(f"not in a Kubernetes pod ({words}): {hint}") from None
        raise ConnectorError(f"kubeconfig {kube.login}: {words}") from None
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ConnectorError(f"kubeconfig {kube.login}: {why}") from None
    except Exception as error:  # the loader lets errors of YAML, JSON and of the user's command through as they are
        raise ConnectorError(f"kubeconfig {kube.login} can not be used: {type(error).__name__}") from None


def _refuse_what_leads_out(kube: KubeConfig) -> None:
    """A kubeconfig that a page names may lie where jobs write, so it runs no program and names no other file.

    Raises ConnectorError.
    """
    assert kube.kubeconfig is not None
    try:
        document = yaml.safe_load(kube.kubeconfig.read_bytes())
    except (OSError, yaml.YAMLError, ValueError):
        return  # the official client says what is wrong with it
    for key in sorted(_keys(document) & _LEADING_OUT):
        raise ConnectorError(
            f"kubeconfig {kube.login}: {key}: a kubeconfig that a page names may run no program and name no other file:"
            " put token and certificates into it (kubectl config view --flatten), or use faultline.toml"
        )


def _keys(value: object) -> set[str]:
    """The keys of clusters and users, wherever they stand. Raises ConnectorError for what has no end."""
    found: set[str] = set()
    open_, seen = [value], 0
    while open_:
        seen += 1
        if seen > _MOST_NODES:
            raise ConnectorError("the kubeconfig is too large, or refers to itself")
        one = open_.pop()
        if isinstance(one, dict):
            found |= {key for key in one if isinstance(key, str)}
            open_ += one.values()
        elif isinstance(one, list):
            open_ += one
    return found


def within(seconds: float, what: Callable[[], _T], doing: str) -> _T:
    """The result of `what`, or ConnectorError when it takes longer. It goes on in its thread, which ends with the
    process.
    """
    done: list[_T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(what())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="kubernetes-login", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise ConnectorError(f"{doing} took longer than {seconds:.0f} s: does its command wait for input?")
    return done[0]


def close(api: Any) -> None:
    """Closes the connections of a client."""
    with contextlib.suppress(Exception):
        api.rest_client.pool_manager.clear()
