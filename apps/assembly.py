"""Builds the product's parts from its settings."""

import ssl
from pathlib import Path

from apps.settings import Config
from k8s_bridge.connection import KubernetesSettings
from k8s_bridge.directory import DirectorySource
from k8s_bridge.kubernetes_api import KubernetesSource, Spawn
from k8s_bridge.source import Sink, Source


def source(config: Config, sink: Sink, spawn: Spawn) -> Source:
    """The cluster source; raises ValueError when it cannot be used as configured."""
    where = config.source_address
    if where.kind == "directory":
        return DirectorySource(Path(where.place), sink, second_list_after=config.guard.confirm_after)
    reach = KubernetesSettings(
        kubeconfig=where.place or None,
        servers=config.api_servers,
        second_list_after=config.guard.confirm_after,
    )
    return KubernetesSource(reach, sink, spawn)


def tls_context(config: Config) -> ssl.SSLContext | None:
    """For the switches' connections, with client certificates required; raises OSError for unusable files."""
    if config.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(config.tls.certificate, config.tls.key)
    context.load_verify_locations(config.tls.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
