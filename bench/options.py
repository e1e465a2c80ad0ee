"""What every part is told."""

import msgspec

from bench.cluster import Cluster
from bench.kinds import Kinds


class Options(msgspec.Struct, frozen=True):
    """`ovn`: whether to measure OVN as well."""

    services: int = 1000
    endpoints: int = 10
    switches: int = 50
    changes: int = 200
    repetitions: int = 5
    seconds: float = 2  # of each stream of packets; below 1 it is only seen that there is one
    ovn: bool = True
    kinds: Kinds = Kinds.CLUSTER_IP  # of services

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.services, self.endpoints, self.switches, self.kinds)
