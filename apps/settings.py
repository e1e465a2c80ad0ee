"""What an operator may set: one YAML file, and options of the command that win over it.

`ryu-manager apps.fabric apps.inspection` reads the file named in SIGNALBOX_CONFIG; `signalbox run` reads the
same file and adds its options; `signalbox check` reads it with the same parser. Every problem is collected, and
each names its key: a typing error in one key must not hide the next one. What a key means is written beside
it, and docs/configuration.md is made from that.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps import forms
from apps.settings_file import ConfigError as ConfigError  # noqa: PLC0414  (callers know it from here)
from apps.settings_file import anchored, converted, place, read
from pipelines.addresses import BITS, Cidr, parse_cidr, parse_ip
from pipelines.derived import GROUP_SIZE
from pipelines.model import EgressMode, MacSource, ReplyPath, Served, Settings, TrafficMode, Tunnel

if TYPE_CHECKING:
    from controller.settings import SwitchSettings

VARIABLE = "SIGNALBOX_CONFIG"
OPTIONS = "SIGNALBOX_OPTIONS"  # by `signalbox run`: keys of its options with their values, as JSON
DEFAULTS = Settings()
LEAST_MTU, LARGEST_MTU = 576, 65535

Seconds = Annotated[float, Meta(gt=0)]


def _means(words: str) -> Meta:
    return Meta(description=words)


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """With it, switches must connect by TLS and show a certificate of the same authority."""

    ca: Annotated[str, _means("File (PEM) of the authorities that sign the switches' certificates.")]
    certificate: Annotated[str, _means("File (PEM) of the controller's certificate and its chain.")]
    key: Annotated[str, _means("File (PEM) of the certificate's private key.")]


class Guard(Struct, frozen=True, forbid_unknown_fields=True):
    """When removals are held back because they look like an accident."""

    share: Annotated[
        float, Meta(ge=0, le=1), _means("A switch that would lose more than this share of its own flows at once …")
    ] = 0.3
    at_least: Annotated[int, Meta(ge=0), _means("… and more flows than this many keeps them for now.")] = 30
    confirm_after: Annotated[
        Seconds,
        _means("Seconds after which a second look (at the switch, at the list of objects) may agree to removals."),
    ] = 30.0


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. Built by `load`, which checks what the types alone do not say."""

    source: Annotated[
        str,
        _means(
            "Where the cluster's objects come from: a directory of manifests, `kubeconfig:FILE`, or `in-cluster` "
            "(the pod's service account). Required, here or by `--source`."
        ),
    ] = ""
    api_servers: Annotated[
        tuple[str, ...],
        _means("URLs of API servers, tried in turn, in place of the one that the credentials name."),
    ] = ()
    ofp_listen: Annotated[
        str, _means("ADDRESS:PORT where switches connect; `[::]:6653` for IPv6, which takes IPv4 too.")
    ] = "0.0.0.0:6653"
    rest_listen: Annotated[
        str, _means("ADDRESS:PORT of REST, health checks and metrics. There is no authentication: keep it local.")
    ] = "127.0.0.1:8080"
    tls: Annotated[Tls | None, _means("Set all three of its keys, or none (plain TCP).")] = None
    mode: Annotated[
        Literal["program", "observe"],
        _means("`observe` reads switches back and shows what it would change, and writes nothing to any of them."),
    ] = "program"
    observe_nodes: Annotated[tuple[str, ...], _means("Names of nodes whose switches are only observed.")] = ()
    mac_sources: Annotated[
        tuple[MacSource, ...],
        _means(
            "Where the MAC of a peer's uplink comes from, the first that knows it: `switch` (its own port "
            "description), `annotation`, `neighbor` (ARP and neighbour discovery, asked through the switches of its "
            "subnet while nothing before it knows; leave it out where the network carries neither). While nothing "
            "knows it, its traffic goes by gw0 and the host."
        ),
    ] = DEFAULTS.mac_sources
    ask_routers: Annotated[
        bool,
        _means(
            "Ask by ARP and neighbour discovery for the MACs of the next hops that a Node names. Without it all that "
            "leaves a subnet goes by gw0 and the host."
        ),
    ] = DEFAULTS.ask_routers
    traffic_mode: Annotated[
        TrafficMode,
        _means(
            "How pods reach other nodes: `noEncap` as they are, by the routers into other subnets; `hybrid` by tunnel "
            "into other subnets; `encap` always by tunnel."
        ),
    ] = DEFAULTS.traffic_mode
    tunnel: Annotated[
        Tunnel, _means("What `tun0` of each bridge is, for `hybrid` and `encap`: UDP port 6081 or 4789 between nodes.")
    ] = DEFAULTS.tunnel
    uplink_mtu: Annotated[
        int,
        Meta(ge=LEAST_MTU, le=LARGEST_MTU),
        _means("MTU of the uplinks in bytes, for Nodes without the annotation `signalbox.dev/uplink-mtu`."),
    ] = DEFAULTS.uplink_mtu
    egress: Annotated[
        EgressMode,
        _means(
            "How pods reach what is outside the cluster: `gateway` by gw0 and the host's masquerading; `direct` "
            "straight from the switch, TCP and UDP with the node's address as source."
        ),
    ] = DEFAULTS.egress
    snat_ports: Annotated[
        str,
        _means(
            "Source ports of `egress: direct`, FIRST-LAST. Every host has to keep them free "
            "(`net.ipv4.ip_local_reserved_ports`)."
        ),
    ] = "-".join(map(str, DEFAULTS.snat_ports))
    no_masquerade: Annotated[
        tuple[str, ...],
        _means(
            "Prefixes outside that pods reach with their own address, beside podCIDRs and nodes: by the router, and "
            "while its MAC is not known by gw0, where the host's masquerading has to leave them alone too."
        ),
    ] = ()
    reply_path: Annotated[
        ReplyPath,
        _means(
            "Where a switch keeps the MAC that a client outside was last seen at, its own or a router's, for replies: "
            "`learn` in flows that it learns, one for each client; `label` in the connection, which costs something "
            "for each packet and nothing for each client."
        ),
    ] = DEFAULTS.reply_path
    reply_idle_timeout: Annotated[
        int, Meta(ge=0, le=65535), _means("Seconds without a reply after which such a flow goes; 0: never.")
    ] = DEFAULTS.reply_idle_timeout
    reply_hard_timeout: Annotated[
        int, Meta(ge=0, le=65535), _means("Seconds without a packet of the client after which it goes; 0: never.")
    ] = DEFAULTS.reply_hard_timeout
    reply_limit: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        _means("Most such flows of one family on one switch; further clients are served as with `label`. 0: no limit."),
    ] = DEFAULTS.reply_limit
    services: Annotated[
        Served,
        _means(
            "Which services the switches serve, to live beside another service proxy while a cluster moves: `all`; "
            "`cluster-ip`, and leave NodePorts, load balancer addresses and external IPs to the other; `off`."
        ),
    ] = DEFAULTS.services
    service_cidrs: Annotated[tuple[str, ...], _means("Ranges of ClusterIPs, beside those of ServiceCIDR objects.")] = ()
    node_port_addresses: Annotated[
        tuple[str, ...],
        _means(
            "Prefixes: NodePorts are served on the node addresses in them. Without any on all addresses of nodes; "
            "where only one family is named, on none of the other."
        ),
    ] = ()
    source_ranges_everywhere: Annotated[
        bool,
        _means(
            "A service's `loadBalancerSourceRanges` hold for its external IPs and NodePorts too, and not only for the "
            "addresses of its load balancer."
        ),
    ] = DEFAULTS.source_ranges_everywhere
    announce: Annotated[
        tuple[str, ...],
        _means(
            "Prefixes: load balancer addresses and external IPs in them, and in the subnet of nodes, are answered for "
            "on that subnet (ARP, neighbour discovery) by one of its nodes, once nobody else was found to have them."
        ),
    ] = ()
    virtual_ip4: Annotated[
        str, _means("IPv4 address that a pod sees as its peer when a service leads it to itself. Not used elsewhere.")
    ] = str(DEFAULTS.virtual_ip4)
    virtual_ip6: Annotated[str, _means("The same for IPv6.")] = str(DEFAULTS.virtual_ip6)
    endpoints_per_service_port: Annotated[
        int,
        Meta(ge=1, le=DEFAULTS.endpoints_per_service_port),
        _means(
            f"Most endpoints that one service port uses in one family, lowest addresses first; more are reported. "
            f"Above {GROUP_SIZE} the choice is divided among several groups."
        ),
    ] = DEFAULTS.endpoints_per_service_port
    audit_interval: Annotated[
        float, Meta(ge=0), _means("Seconds between two comparisons of a switch with what it should hold; 0: never.")
    ] = 300.0
    echo_interval: Annotated[Seconds, _means("Seconds between two echo requests to a switch.")] = 5.0
    echo_timeout: Annotated[Seconds, _means("Seconds without an answer after which a connection is closed.")] = 15.0
    guard: Annotated[Guard, _means("Removals that look like an accident.")] = Guard()
    reject_rate: Annotated[
        int, Meta(ge=1), _means("Refused packets a second that one switch may send to the controller for an answer.")
    ] = 50
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _means("Least level that is logged.")] = "info"

    @property
    def source_address(self) -> forms.SourceAddress:
        return forms.parse_source(self.source)

    @property
    def ofp_address(self) -> forms.Listen:
        return forms.parse_listen(self.ofp_listen)

    @property
    def rest_address(self) -> forms.Listen:
        return forms.parse_listen(self.rest_listen)

    def fabric_settings(self, source_complete: bool = True) -> Settings:
        """The part that changes flows."""
        return Settings(
            source_complete=source_complete,
            service_cidrs=tuple(parse_cidr(text) for text in self.service_cidrs),
            mac_sources=self.mac_sources,
            ask_routers=self.ask_routers,
            traffic_mode=self.traffic_mode,
            tunnel=self.tunnel,
            egress=self.egress,
            no_masquerade=tuple(parse_cidr(text) for text in self.no_masquerade),
            snat_ports=forms.parse_ports(self.snat_ports),
            uplink_mtu=self.uplink_mtu,
            reply_path=self.reply_path,
            reply_idle_timeout=self.reply_idle_timeout,
            reply_hard_timeout=self.reply_hard_timeout,
            reply_limit=self.reply_limit,
            services=self.services,
            node_port_addresses=tuple(parse_cidr(text) for text in self.node_port_addresses),
            source_ranges_everywhere=self.source_ranges_everywhere,
            announce=tuple(parse_cidr(text) for text in self.announce),
            virtual_ip4=parse_ip(self.virtual_ip4),
            virtual_ip6=parse_ip(self.virtual_ip6),
            endpoints_per_service_port=self.endpoints_per_service_port,
        )

    def switch_settings(self) -> "SwitchSettings":
        """The part about switches. Imports eventlet: patch first."""
        from controller.connection import Patience
        from controller.guard import GuardRule
        from controller.settings import SwitchSettings

        return SwitchSettings(
            patience=Patience(echo_interval=self.echo_interval, echo_timeout=self.echo_timeout),
            guard=GuardRule(self.guard.share, self.guard.at_least, self.guard.confirm_after),
            audit_interval=self.audit_interval,
            observe_all=self.mode == "observe",
            observe_nodes=frozenset(self.observe_nodes),
            reject_packets=self.reject_rate,
            reject_burst=self.reject_rate,
        )


NESTED: dict[str, type[Struct]] = {"tls": Tls, "guard": Guard}


# --- reading ----------------------------------------------------------------------------------------------------


def load(path: Path | str | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """The settings of a file, or the defaults, with `overrides` by dotted key; None there means not given.

    Raises ConfigError with everything that is wrong. Relative paths in the file start at the file's folder.
    """
    raw = {} if path is None else anchored(read(Path(path)), Path(path).parent)
    for key, value in (overrides or {}).items():
        if value is not None:
            place(raw, key.split("."), value)
    problems: list[str] = []
    values = converted(Config, raw, problems, NESTED)
    if not raw.get("source"):
        problems.append(
            "source: required: a directory of manifests, kubeconfig:FILE or in-cluster, here or by --source"
        )
    for key, check in _CHECKS.items():
        if key in raw and key in values:
            problems += (f"{key}: {reason}" for reason in _reasons(check, values[key]))
    if not problems:
        config = Config(**values)
        problems += _together(config)
    if problems:
        raise ConfigError(problems, "" if path is None else str(path))
    return config


def current() -> Config:
    """The settings of this process: of the file in SIGNALBOX_CONFIG and of what `signalbox run` was told."""
    path, options = os.environ.get(VARIABLE), os.environ.get(OPTIONS)
    if not path and not options:
        raise ConfigError([f"no settings: name the file in {VARIABLE}, or start with `signalbox run`"])
    return load(path or None, msgspec.json.decode(options, type=dict[str, Any]) if options else None)


# --- what the types do not say ----------------------------------------------------------------------------------


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "source": forms.parse_source,
    "api_servers": forms.each(forms.url),
    "ofp_listen": forms.parse_listen,
    "rest_listen": forms.parse_listen,
    "tls": lambda tls: forms.each(forms.readable)((tls and (tls.ca, tls.certificate, tls.key)) or ()),
    "mac_sources": forms.mac_sources,
    "no_masquerade": forms.each(parse_cidr),
    "service_cidrs": forms.each(parse_cidr),
    "node_port_addresses": forms.each(parse_cidr),
    "announce": forms.each(parse_cidr),
    "snat_ports": forms.parse_ports,
    "virtual_ip4": forms.address(4),
    "virtual_ip6": forms.address(6),
}


def _reasons(check: Callable[[Any], Any], value: Any) -> Iterator[str]:
    try:
        check(value)
    except ValueError as error:
        yield str(error)


def _together(config: Config) -> Iterator[str]:
    """What single keys do not show."""
    if config.echo_timeout <= config.echo_interval:
        yield "echo_timeout: has to be longer than echo_interval"
    if config.ofp_address.port == config.rest_address.port:
        yield f"rest_listen: port {config.rest_address.port} is that of ofp_listen"
    if config.api_servers and config.source_address.kind == "directory":
        yield "api_servers: source is a directory, which has none"
    settings = config.fabric_settings()
    for key, ip in (("virtual_ip4", settings.virtual_ip4), ("virtual_ip6", settings.virtual_ip6)):
        for cidr in settings.service_cidrs:
            if cidr.overlaps(Cidr(ip.family, ip.value, BITS[ip.family])):
                yield f"{key}: {ip} lies in {cidr} of service_cidrs"
