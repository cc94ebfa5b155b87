"""The cluster: names of hosts, the parts of a node, and the switches that connect the nodes."""
