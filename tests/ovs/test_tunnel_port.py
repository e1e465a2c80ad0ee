"""What OpenFlow tells of `tun0`: that a network device is no tunnel. Of which type a tunnel is, it does not tell."""

import pytest

from tests.ovs.cluster import Cluster

pytestmark = pytest.mark.ovs

SETTINGS = {"traffic_mode": "encap", "tunnel": "geneve"}
TUNNEL = ("type=geneve", "options:remote_ip=flow", "options:key=flow")


def told(cluster: Cluster) -> list[str]:
    rows = cluster.product.get("/v1/problems")
    return [row["reason"] for row in rows if (row["object"], row["field"]) == ("n1", "port tun0")]


def become(cluster: Cluster, *columns: str) -> None:
    cluster.lab.vsctl("n1", "clear", "interface", "tun0", "options", "--", "set", "interface", "tun0", *columns)


def test_a_device_in_place_of_the_tunnel_is_told_and_a_tunnel_of_another_type_is_not(cluster: Cluster) -> None:
    assert told(cluster) == []
    try:
        become(cluster, "type=internal")
        cluster.wait(lambda: told(cluster), "the device to be told")
        (reason,) = told(cluster)
        assert "no tunnel" in reason
        assert f"`ovs-vsctl set interface tun0 {' '.join(TUNNEL)}`" in reason
        become(cluster, "type=vxlan", *TUNNEL[1:])
        cluster.wait(lambda: not told(cluster), "the tunnel to be taken for one")
    finally:
        become(cluster, *TUNNEL)
    cluster.level()
