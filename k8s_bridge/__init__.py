"""Cluster sources: where the objects come from, and how they become `pipelines.model` values.

`directory` reads a folder of manifests and follows edits; `kubernetes_api` lists and watches an API server.
Both decode item by item (`shapes`), translate (`translate`), keep what is current (`mirror`), hold mass
removals (`guard`) and hand changes to a sink (`source`). This is the only folder that imports a Kubernetes
client. Everything blocks in plain standard-library calls, which become green when the product is patched.
"""
