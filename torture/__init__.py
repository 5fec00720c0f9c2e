"""`make torture`: a campaign of random faults on real brokers, and the verdict by Jepsen's definitions."""
