"""Switches: listener and connections, codec and read-back, fleet, sessions, bundles, audit, guard and roles.

With `apps` the only package that runs on the hub (eventlet) and may import ryu. It knows units of flows, not
what they mean: that is decided in `pipelines`.
"""
