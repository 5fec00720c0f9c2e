class Slice:
    look: int
    most: int
    looks: int
