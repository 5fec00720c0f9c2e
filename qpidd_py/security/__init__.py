"""Authentication: users and passwords."""
