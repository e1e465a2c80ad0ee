"""How large a pod's packets may be, so that they fit where they may have to go."""

from pipelines.addresses import Ip
from pipelines.model import Node, Settings, TrafficMode, Tunnel

IP_HEADER = {4: 20, 6: 40}
UDP_HEADER = 8
TUNNEL_HEADER = {Tunnel.GENEVE: 8, Tunnel.VXLAN: 8}
INNER_ETHERNET = 14
LARGEST_IN_TUNNEL = 65000  # bytes: what Open vSwitch's tunnel devices take


def pod_mtu(uplink_mtu: int, mode: TrafficMode, tunnel: Tunnel, family: int) -> int:
    """The MTU of pods, in bytes. `family` is that of the tunnel's outer packets.

    With `hybrid` as with `encap`: a pod has one MTU for near and far peers.
    """
    if mode is TrafficMode.NO_ENCAP:
        return uplink_mtu
    overhead = IP_HEADER[family] + UDP_HEADER + TUNNEL_HEADER[tunnel] + INNER_ETHERNET
    return min(uplink_mtu - overhead, LARGEST_IN_TUNNEL)


def mtu_of_pods(node: Node, addresses: tuple[Ip, ...], settings: Settings) -> int:
    """The MTU of a node's pods, in bytes. `addresses`: the node's own; its tunnels start at the first."""
    family = addresses[0].family if addresses else 4
    return pod_mtu(node.mtu or settings.uplink_mtu, settings.traffic_mode, settings.tunnel, family)
