"""The rules by which a router gives requests to replicas."""

LEAST_LOADED, ROUND_ROBIN = "least-loaded", "round-robin"
ROUTERS = (LEAST_LOADED, ROUND_ROBIN)
