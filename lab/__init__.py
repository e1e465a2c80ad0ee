"""A cluster on one machine: a network namespace and an own Open vSwitch for every node of a manifest directory.

`plan` works out from Node and Pod manifests what is to be built, `script` says it in the words of a shell,
`netns` and `switch` do it, and `cluster.Lab` is what tests, benches and the command line hold in their hands.
`traffic` and `capture` send and look at packets in it. No container engine, nothing in the machine's own network
namespace: all that a lab leaves outside its namespaces is its state directory.
"""
