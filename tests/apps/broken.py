"""Manifests with one fault of each kind, and what has to be said: (kind, object, field, words of the reason)."""

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: %s, creationTimestamp: "2024-01-0%dT00:00:00Z", annotations: {%s}}
spec: {podCIDRs: [%s]}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {namespace: default, name: %s, creationTimestamp: "2024-01-0%dT00:00:00Z"}
spec: {nodeName: n1, containers: []}
status: {phase: Running, podIP: 10.10.1.10, podIPs: [{ip: 10.10.1.10}]}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {namespace: default, name: %s, creationTimestamp: "2024-01-0%dT00:00:00Z"}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{port: 80}]}
"""

FAULTS = {
    "a node claims the podCIDR of another": (
        [NODE % ("n1", 1, "", "10.10.0.0/24"), NODE % ("n2", 2, "", "10.10.0.0/16")],
        ("Node", "n2", "spec.podCIDRs", "overlaps 10.10.0.0/24 of the older Node n1"),
    ),
    "two nodes with one datapath id": (
        [
            NODE % ("n1", 1, 'signalbox.dev/datapath-id: "0000000000000001"', "10.10.1.0/24"),
            NODE % ("n2", 2, 'signalbox.dev/datapath-id: "0000000000000001"', "10.10.2.0/24"),
        ],
        ("Node", "n2", "metadata.annotations[signalbox.dev/datapath-id]", "belongs to the older Node n1"),
    ),
    "an annotation that is no datapath id": (
        [NODE % ("n1", 1, "signalbox.dev/datapath-id: one", "10.10.1.0/24")],
        ("Node", "n1", "metadata.annotations[signalbox.dev/datapath-id]", "is not a datapath id"),
    ),
    "an annotation that is no MAC": (
        [NODE % ("n1", 1, "signalbox.dev/mac-address: none", "10.10.1.0/24")],
        ("Node", "n1", "metadata.annotations[signalbox.dev/mac-address]", "is not a MAC address"),
    ),
    "two pods with one address": (
        [NODE % ("n1", 1, "", "10.10.1.0/24"), POD % ("old", 1), POD % ("new", 2)],
        ("Pod", "default/new", "status.podIPs", "belongs to the older Pod default/old"),
    ),
    "two services with one address and port": (
        [SERVICE % ("old", 1), SERVICE % ("new", 2)],
        ("Service", "default/new", "spec.ports", "belongs to the older Service default/old"),
    ),
    "an address that is none": (
        [POD.replace("10.10.1.10}]", "10.10.1.300}]") % ("a", 1)],
        ("Pod", "default/a", "status.podIPs[0].ip", "10.10.1.300"),
    ),
    "a value of a wrong type": (
        [SERVICE.replace("port: 80", "port: 80, nodePort: x") % ("web", 1)],
        ("Service", "default/web", "spec.ports[0].nodePort", 'must be a whole number, not the text "x"'),
    ),
    "a part of a wrong type": (
        [SERVICE.replace("ports: [{port: 80}]", "ports: 80") % ("web", 1)],
        ("Service", "default/web", "spec.ports", "must be a list, not the number 80"),
    ),
    "a misspelt field": (
        [SERVICE.replace("clusterIPs:", "externalTraficPolicy: Local, clusterIPs:") % ("web", 1)],
        ("Service", "default/web", "spec.externalTraficPolicy", "did you mean externalTrafficPolicy?"),
    ),
    "a missing name": (
        ["apiVersion: v1\nkind: Service\nmetadata: {namespace: default}\n"],
        ("File", "", "content", "metadata.name"),
    ),
    "broken YAML": (["kind: [\n"], ("File", "", "content", "")),
    "an unknown kind": (["apiVersion: v1\nkind: Foo\n"], ("File", "", "content", "Foo of apiVersion v1")),
    "one object twice": (
        [SERVICE % ("web", 1), SERVICE % ("web", 1)],
        ("Service", "default/web", "object", "is ignored: already in"),
    ),
}
