"""Endpoints with hints: the topology zones and nodes whose clients should get them."""

from typing import Any

from tests.ovs.objects import Object
from tests.ovs.world import PODS
from tests.services.world import Service


def hinted(service: Service, **hints: dict[str, Any] | None) -> list[Object]:
    """The slices, with hints by the name of the endpoint."""
    slices = service.slices()
    for one in slices:
        for endpoint in one["endpoints"]:
            (name,) = (n for n, pod in PODS.items() if endpoint["addresses"][0] in pod.addresses.values())
            if hints.get(name):
                endpoint["hints"] = hints[name]
    return slices


def zoned(*names: str) -> dict[str, Any]:
    return {"forZones": [{"name": name} for name in names]}
