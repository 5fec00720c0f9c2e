"""The record of the newest in-sync set outside the brokers: a file or Pacemaker's node attributes."""
