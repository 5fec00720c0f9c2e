"""`make demo`: three brokers, clients under load, and every fault that the cluster is made for."""
