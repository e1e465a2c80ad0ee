"""Everything the pipeline says, one module for each concern, in the order in which a packet meets them."""

from pipelines.feature import Feature
from pipelines.features import (
    affinity,
    announce,
    classify,
    conntrack,
    destination,
    egress,
    misses,
    neighbors,
    output,
    reply_path,
    routes,
    services,
    snat,
    spoof_guard,
    tunnel_guard,
)

FEATURES: tuple[Feature, ...] = (
    *misses.FEATURES,
    *classify.FEATURES,
    *spoof_guard.FEATURES,
    *tunnel_guard.FEATURES,
    *neighbors.FEATURES,
    *announce.FEATURES,
    *destination.FEATURES,
    *conntrack.FEATURES,
    *services.FEATURES,
    *affinity.FEATURES,
    *snat.FEATURES,
    *routes.FEATURES,
    *reply_path.FEATURES,
    *egress.FEATURES,
    *output.FEATURES,
)

NUMBERS = {feature.name: feature.number for feature in FEATURES}
BY_NUMBER = {feature.number: feature for feature in FEATURES}

if len(BY_NUMBER) != len(FEATURES) or len(NUMBERS) != len(FEATURES):
    raise AssertionError("two features share a name or a number")
