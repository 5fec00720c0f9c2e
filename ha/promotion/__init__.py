"""How a broker becomes primary: the rules, claims, taking over, the score for a resource manager.  Pure."""
