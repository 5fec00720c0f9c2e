"""The record of the newest in-sync set outside of the brokers: a file or Pacemaker's attributes."""
