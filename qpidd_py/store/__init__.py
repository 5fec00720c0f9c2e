"""The journal: the broker's log on disk.  `README.md` in this folder has the map, the order of things and why."""
