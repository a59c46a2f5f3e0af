"""Header names that keep their case."""


class Cased(bytes):
    """A header's name in the case of llama-server's, which some clients of its kind insist on.

    HTTP does not care, and uvicorn writes every name in lower case: this one stays as it is.
    """

    def lower(self) -> "Cased":
        return self
