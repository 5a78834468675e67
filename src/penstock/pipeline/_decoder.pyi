from penstock.pipeline.decoding import Columns

class Builder(Columns):
    def __init__(self, key: bool, value: bool, headers: bool) -> None: ...
