"""Configuration of runners on a cluster: their sets, pools of nodes, build service and controller."""
