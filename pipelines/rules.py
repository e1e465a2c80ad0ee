"""Every rule, in the order in which they run: a rule reads only what earlier rules made."""

from pipelines import advice, announce_rules, node_rules, pod_rules, service_rules
from pipelines.claims import Rule
from pipelines.derived import Derived, Entrance
from pipelines.model import Kind

RULES = (
    Rule("podCIDR claims", Kind.NODE, node_rules.pod_cidr_claims),
    Rule("pod CIDRs", Kind.SETTINGS, node_rules.pod_cidrs),
    Rule("node claims", Kind.NODE, node_rules.node_claims),
    Rule("uplink MACs", Kind.NODE, node_rules.uplink_macs),
    Rule("node network", Kind.NODE, node_rules.node_network),
    Rule("routers", Kind.NODE, node_rules.routers),
    Rule("node advice", Kind.NODE, advice.about_node),
    Rule("settings advice", Kind.SETTINGS, advice.about_settings),
    Rule("members", Derived.DATAPATH, node_rules.members),
    Rule("pod addresses", Kind.POD, pod_rules.pod_addresses),
    Rule("pods", Kind.POD, pod_rules.local_pods),
    Rule("pod advice", Kind.POD, advice.about_pod),
    Rule("backends", Kind.ENDPOINT_SLICE, service_rules.backends),
    Rule("endpoint advice", Kind.ENDPOINT_SLICE, advice.about_endpoints),
    Rule("services", Kind.SERVICE, service_rules.services),
    Rule("external frontends", Kind.SERVICE, service_rules.external_frontends),
    Rule("service advice", Derived.HOST_ENDPOINT, advice.about_host_endpoint),
    Rule("service ranges", Kind.SERVICE_CIDR, service_rules.service_ranges),
    Rule("configured ranges", Kind.SETTINGS, service_rules.service_ranges),
    Rule("lone addresses", Derived.FRONTEND, service_rules.lone_addresses),
    Rule("stations", Kind.NODE, announce_rules.stations),
    Rule("addresses to announce", Derived.FRONTEND, announce_rules.announceable),
    Rule("announced addresses", Derived.ANNOUNCEABLE, announce_rules.announced),
    Rule("tracked ranges", Derived.SERVICE_RANGE, service_rules.tracked_range),
    Rule("tracked lone addresses", Derived.LONE_ADDRESS, service_rules.tracked_range),
    Rule("tracked podCIDRs", Derived.POD_CIDR, service_rules.tracked_range),
    Rule("tracked nodes", Derived.NODE_ADDRESS, service_rules.tracked_range),
)

# Kinds of which every claim counts: the value is all of them together, in a fixed order.
UNITED = frozenset({Derived.BACKENDS, Derived.NODES_AMONG_PODS, Derived.STATIONS, Derived.ANNOUNCEABLE})

# Of what two objects may both want: the kind of object, the field in which they say so, and the words for the one
# that does not get it. They name the thing by its key, and whose it is.
CONTESTED: dict[Derived, tuple[Kind, str, str]] = {
    Derived.DATAPATH: (
        Kind.NODE,
        "metadata.annotations[signalbox.dev/datapath-id]",
        "the switch {} belongs to {}; this Node has none",
    ),
    Derived.NODE_ADDRESS: (
        Kind.NODE,
        "metadata.annotations[signalbox.dev/node-addresses]",
        "the address {} belongs to {}; ignored here",
    ),
    Derived.UPLINK_MAC: (
        Kind.NODE,
        "uplink MAC",
        "{0[1]} is the MAC of {1} on {0[0]}; others reach this Node by their hosts' routing until one has another MAC",
    ),
    Derived.POD_CIDR_CLAIM: (Kind.NODE, "spec.podCIDRs", "{} belongs to {}; it is not routed to this Node"),
    Derived.POD_ADDRESS: (Kind.POD, "status.podIPs", "the address {} belongs to {}; ignored here"),
    Derived.FRONTEND: (Kind.SERVICE, "spec.ports", "{} belongs to {}; ignored here"),  # or what ENTRANCES says
}
ENTRANCES = service_rules.FIELDS | {Entrance.CLUSTER_IP: "spec.ports", Entrance.NODE_PORT: "spec.ports[].nodePort"}
