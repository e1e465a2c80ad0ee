"""What `ryu-manager` and the `signalbox` command load: thin modules that wire the other folders together.

`fabric` is the product, `inspection` its REST side, `cli` the command; `ryu_manager` starts Ryu on a current
Python. Nothing is imported here: monkey patching has to come first, and a command has to start fast.
"""
