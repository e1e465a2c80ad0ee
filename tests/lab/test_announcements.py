"""What a router says that has taken over, as scapy reads it."""

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from lab.announcements import announcement

MAC = "fe:00:00:00:01:02"


def test_ipv4_address_is_told_by_a_request_for_itself() -> None:
    frame = Ether(announcement("192.168.77.1/24", MAC))
    arp = frame[ARP]
    assert (frame.dst, frame.src, arp.op) == ("ff:ff:ff:ff:ff:ff", MAC, 1)
    assert (arp.psrc, arp.pdst, arp.hwsrc) == ("192.168.77.1", "192.168.77.1", MAC)


@pytest.mark.parametrize("address", ["fd00:77::1", "fe80::1"])
def test_ipv6_address_is_told_by_an_advertisement_that_overrides(address: str) -> None:
    data = announcement(f"{address}/64", MAC)
    frame = Ether(data)
    said = frame[ICMPv6ND_NA]
    assert (frame.dst, frame.src) == ("33:33:00:00:00:01", MAC)
    assert (frame[IPv6].src, frame[IPv6].dst, frame[IPv6].hlim) == (address, "ff02::1", 255)
    assert (said.R, said.S, said.O, said.tgt) == (1, 0, 1, address)
    assert frame[ICMPv6NDOptDstLLAddr].lladdr == MAC
    del said.cksum
    assert bytes(frame) == data, "the checksum is right"
