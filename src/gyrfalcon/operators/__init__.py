"""The tall matrix k(rows, centers) that is never built, and its three verbs: in memory, sparse, on a cluster."""
