"""Settings: what is refused, and that an error names its key."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps import settings
from apps.forms import Listen, parse_listen
from apps.settings import ConfigError, load
from pipelines.addresses import parse_cidr, parse_ip
from pipelines.model import EgressMode, MacSource, ReplyPath, Served, Settings, TrafficMode, Tunnel


def write(folder: Path, text: str) -> Path:
    path = folder / "signalbox.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, f"source: manifests\n{text}"))
    return caught.value.problems


def test_defaults_are_those_of_the_model() -> None:
    config = load(None, {"source": "manifests"})
    assert config.fabric_settings() == Settings()
    assert config.ofp_address == Listen("0.0.0.0", 6653)
    assert config.rest_address == Listen("127.0.0.1", 8080)


def test_what_the_file_says_reaches_the_fabric(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "source: in-cluster\nmac_sources: [annotation]\nservice_cidrs: [10.96.0.0/16, 'fd00:96::/112']\n"
        "virtual_ip4: 192.0.2.1\nendpoints_per_service_port: 7\n",
    )
    assert load(path).fabric_settings() == Settings(
        service_cidrs=(parse_cidr("10.96.0.0/16"), parse_cidr("fd00:96::/112")),
        mac_sources=(MacSource.ANNOTATION,),
        virtual_ip4=parse_ip("192.0.2.1"),
        endpoints_per_service_port=7,
    )


def test_how_packets_reach_other_nodes_and_the_outside_reaches_the_fabric(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "source: x\nmac_sources: [neighbor, switch]\nask_routers: false\ntraffic_mode: hybrid\ntunnel: vxlan\n"
        "uplink_mtu: 9000\negress: direct\nsnat_ports: 40000-40255\nno_masquerade: [198.51.100.0/24, 'fd01::/16']\n",
    )
    assert load(path).fabric_settings() == Settings(
        mac_sources=(MacSource.NEIGHBOR, MacSource.SWITCH),
        ask_routers=False,
        traffic_mode=TrafficMode.HYBRID,
        tunnel=Tunnel.VXLAN,
        uplink_mtu=9000,
        egress=EgressMode.DIRECT,
        snat_ports=(40000, 40255),
        no_masquerade=(parse_cidr("198.51.100.0/24"), parse_cidr("fd01::/16")),
    )


def test_ways_back_to_clients_outside_reach_the_fabric(tmp_path: Path) -> None:
    text = "source: x\nreply_path: label\nreply_idle_timeout: 5\nreply_hard_timeout: 6\nreply_limit: 0\n"
    assert load(write(tmp_path, text)).fabric_settings() == Settings(
        reply_path=ReplyPath.LABEL, reply_idle_timeout=5, reply_hard_timeout=6, reply_limit=0
    )


def test_which_services_are_served_and_for_whom_reaches_the_fabric(tmp_path: Path) -> None:
    text = (
        "source: x\nservices: cluster-ip\nnode_port_addresses: [192.168.77.0/24, 'fd00:77::/64', 0.0.0.0/0]\n"
        "source_ranges_everywhere: true\nendpoints_per_service_port: 10000\n"
    )
    assert load(write(tmp_path, text)).fabric_settings() == Settings(
        services=Served.CLUSTER_IP,
        node_port_addresses=tuple(map(parse_cidr, ("192.168.77.0/24", "fd00:77::/64", "0.0.0.0/0"))),
        source_ranges_everywhere=True,
        endpoints_per_service_port=10_000,
    )


@pytest.mark.parametrize(("text", "served"), [("off", Served.OFF), ("'off'", Served.OFF), ("all", Served.ALL)])
def test_off_needs_no_quotes(text: str, served: Served, tmp_path: Path) -> None:
    """YAML 1.1 takes it for false."""
    assert load(write(tmp_path, f"source: x\nservices: {text}\n")).services is served


def test_what_the_file_says_reaches_the_switches(tmp_path: Path) -> None:
    text = "source: x\nmode: observe\nobserve_nodes: [n7]\nreject_rate: 9\necho_timeout: 33\nguard: {share: 0.5}\n"
    switches = load(write(tmp_path, text)).switch_settings()
    assert switches.observe_all
    assert switches.observe_nodes == {"n7"}
    assert switches.reject_packets == 9
    assert switches.patience.echo_timeout == 33
    assert (switches.guard.share, switches.guard.least) == (0.5, 30)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("guard: {shore: 1}", "unknown key `guard.shore`; did you mean `guard.share`?"),
        ("trafic_mode: hybrid", "unknown key `trafic_mode`; did you mean `traffic_mode`?"),
        ("guard: {xyz: 1}", "unknown key `guard.xyz`; known: guard.share, guard.at_least, guard.confirm_after"),
        ("xyz: 1", "unknown key `xyz`; docs/configuration.md has all"),
    ],
)
def test_an_unknown_key_is_named_with_what_may_have_been_meant(tmp_path: Path, text: str, said: str) -> None:
    assert refused(tmp_path, text) == [said]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ofp_listen: 6653", "ofp_listen: expected text, got a whole number"),
        ("ofp_listen: ::1:6653", "ofp_listen: '::1:6653': put an IPv6 address in brackets"),
        ("ofp_listen: 0.0.0.0", "ofp_listen: '0.0.0.0' is not of the form ADDRESS:PORT"),
        ("ofp_listen: 0.0.0.0:70000", "ofp_listen: '0.0.0.0:70000' is not of the form"),
        ("rest_listen: nowhere:80", "rest_listen: 'nowhere' does not appear to be an IPv4 or IPv6 address"),
        ("rest_listen: 127.0.0.1:6653", "rest_listen: port 6653 is that of ofp_listen"),
        ("mode: watch", "mode: invalid enum value 'watch'; choose from observe, program"),
        (
            "mac_sources: [switch, guess]",
            "mac_sources[1]: invalid enum value 'guess'; choose from switch, annotation, n",
        ),
        ("mac_sources: [switch, switch]", "mac_sources: a source is named twice"),
        ("service_cidrs: [10.96.0.1/16]", "service_cidrs: 10.96.0.1/16 has host bits set"),
        ("service_cidrs: 10.96.0.0/16", "service_cidrs: expected a list, as in [A, B], got text"),
        ("virtual_ip4: fd00::1", "virtual_ip4: fd00::1 is not an IPv4 address"),
        ("virtual_ip6: 10.0.0.1", "virtual_ip6: 10.0.0.1 is not an IPv6 address"),
        ("{virtual_ip4: 10.96.0.9, service_cidrs: [10.96.0.0/16]}", "virtual_ip4: 10.96.0.9 lies in 10.96.0.0/16"),
        ("endpoints_per_service_port: 10001", "endpoints_per_service_port: expected a whole number <= 10000"),
        ("endpoints_per_service_port: 0", "endpoints_per_service_port: expected a whole number >= 1"),
        ("services: clusterip", "services: invalid enum value 'clusterip'; choose from all, cluster-ip, off"),
        ("services: true", "services: expected text, got true or false"),
        ("node_port_addresses: [192.168.77.101]", "node_port_addresses: '192.168.77.101'"),
        ("node_port_addresses: [192.168.77.101/24]", "node_port_addresses: 192.168.77.101/24 has host bits set"),
        ("announce: [192.168.77.129/25]", "announce: 192.168.77.129/25 has host bits set"),
        ("node_port_addresses: 192.168.77.0/24", "node_port_addresses: expected a list, as in [A, B], got text"),
        ("source_ranges_everywhere: some", "source_ranges_everywhere: expected true or false, got text"),
        ("audit_interval: soon", "audit_interval: expected a number, got text"),
        ("audit_interval: -1", "audit_interval: expected a number >= 0"),
        ("ask_routers: maybe", "ask_routers: expected true or false, got text"),
        ("traffic_mode: overlay", "traffic_mode: invalid enum value 'overlay'; choose from noEncap, hybrid, encap"),
        ("tunnel: gre", "tunnel: invalid enum value 'gre'; choose from geneve, vxlan"),
        ("egress: host", "egress: invalid enum value 'host'; choose from gateway, direct"),
        ("uplink_mtu: 575", "uplink_mtu: expected a whole number >= 576"),
        ("uplink_mtu: 65536", "uplink_mtu: expected a whole number <= 65535"),
        ("reply_path: cache", "reply_path: invalid enum value 'cache'; choose from learn, label"),
        ("reply_idle_timeout: 65536", "reply_idle_timeout: expected a whole number <= 65535"),
        ("reply_limit: -1", "reply_limit: expected a whole number >= 0"),
        ("no_masquerade: [10.0.0.1/8]", "no_masquerade: 10.0.0.1/8 has host bits set"),
        ("snat_ports: 61440", "snat_ports: expected text, got a whole number"),
        ("snat_ports: 61440-65536", "snat_ports: '61440-65536' is not of the form FIRST-LAST"),
        ("snat_ports: 65535-61440", "snat_ports: 65535-61440 holds fewer than 256 ports"),
        ("snat_ports: 61440-61694", "snat_ports: 61440-61694 holds fewer than 256 ports"),
        ("snat_ports: 1023-9000", "snat_ports: 1023-9000 holds ports below 1024"),
        ("snat_ports: 32767-65535", "snat_ports: 32767-65535 holds some of 30000-32767"),
        ("snat_ports: 20000-30000", "snat_ports: 20000-30000 holds some of 30000-32767"),
        ("snat_ports: 20000-65535", "snat_ports: 20000-65535 holds some of 30000-32767"),
        ("echo_interval: 20", "echo_timeout: has to be longer than echo_interval"),
        ("guard: {share: 1.5}", "guard.share: expected a number <= 1.0"),
        ("guard: much", "guard: expected keys with values, got text"),
        ("log_level: loud", "log_level: invalid enum value 'loud'; choose from"),
        ("tls: {ca: ca.pem}", "tls.certificate: required"),
        ("tls: {ca: ca.pem, certificate: c.pem, key: k.pem}", "ca.pem cannot be read: No such file"),
        ("api_servers: [10.0.0.1:6443]", "api_servers: '10.0.0.1:6443' is not a URL"),
        ("api_servers: ['https://10.0.0.1:6443']", "api_servers: source is a directory, which has none"),
        ("source: y", "key 'source' occurs twice"),
        ("a: [", "while parsing"),
        ("---\nsource: y", "holds more than one document"),
    ],
)
def test_a_wrong_value_is_refused_with_key_and_reason(tmp_path: Path, text: str, said: str) -> None:
    if text.startswith("{"):
        with pytest.raises(ConfigError) as caught:
            load(write(tmp_path, "{source: x, " + text[1:]))
        problems = caught.value.problems
    else:
        problems = refused(tmp_path, text)
    assert any(said in problem for problem in problems), problems


def test_all_problems_are_said_at_once(tmp_path: Path) -> None:
    assert (
        len(refused(tmp_path, "moode: x\naudit_interval: x\nguard: {share: 2, x: 1}\nmac_sources: [switch, switch]"))
        == 5
    )


@pytest.mark.parametrize("text", ["source: ''", "source: null", "mode: observe"])
def test_a_missing_source_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"source: (required|expected)"):
        load(write(tmp_path, text))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected keys with values, got list"):
        load(write(tmp_path, "- source"))


@pytest.mark.parametrize(
    ("source", "kind", "place"),
    [
        ("manifests", "directory", "{folder}/manifests"),
        ("kubeconfig:admin.conf", "kubeconfig", "{folder}/admin.conf"),
        ("kubeconfig:/etc/admin.conf", "kubeconfig", "/etc/admin.conf"),
        ("in-cluster", "in-cluster", ""),
    ],
)
def test_relative_paths_start_at_the_file(tmp_path: Path, source: str, kind: str, place: str) -> None:
    found = load(write(tmp_path, f"source: {source}")).source_address
    assert found == (kind, place.format(folder=tmp_path))


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "source: one\nmode: program\nguard: {share: 0.1, at_least: 5}")
    config = load(path, {"source": "two", "mode": "observe", "guard.share": 0.2, "log_level": None})
    assert (config.source, config.mode, config.log_level) == ("two", "observe", "info")
    assert (config.guard.share, config.guard.at_least) == (0.2, 5)


def test_the_environment_names_file_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.VARIABLE, str(write(tmp_path, "source: in-cluster\nreject_rate: 8")))
    monkeypatch.setenv(settings.OPTIONS, '{"mode": "observe"}')
    config = settings.current()
    assert (config.source, config.reject_rate, config.mode) == ("in-cluster", 8, "observe")


def test_no_settings_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(settings.VARIABLE, raising=False)
    monkeypatch.delenv(settings.OPTIONS, raising=False)
    with pytest.raises(ConfigError, match="SIGNALBOX_CONFIG"):
        settings.current()


@given(st.ip_addresses(), st.integers(1, 65535))
def test_a_listen_address_reads_back(address: object, port: int) -> None:
    listen = Listen(str(address), port)
    assert parse_listen(str(listen)) == listen


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_keys = st.sampled_from([*settings.Config.__struct_fields__, "share", "ca", "nonsense", 5])
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3))


@given(st.dictionaries(_keys, _values, max_size=5))
def test_nothing_but_a_config_error_is_raised(raw: dict[object, object]) -> None:
    with suppress(ConfigError):
        assert isinstance(load(None, {str(key): value for key, value in raw.items()}), settings.Config)
