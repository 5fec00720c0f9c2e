class Slice:
    most: int
    looks: int
