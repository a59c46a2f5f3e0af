"""What the front needs to know of a model file before it is loaded: metadata, sizes, shapes."""

from dataclasses import dataclass
from pathlib import Path

from services.engine.errors import ModelNotLoadable
from services.gguf import NotGguf, Value, count_weights, read_header


@dataclass(frozen=True, kw_only=True)
class Gguf:
    """metadata: by key. n_params: weights in all tensors. n_header_bytes: magic to the end of the
    tensor infos. n_file_bytes: of the whole file."""

    metadata: dict[str, Value]
    n_params: int
    n_tensors: int
    n_header_bytes: int
    n_file_bytes: int

    def text(self, key: str) -> str:
        """A string value, empty when absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """A whole number, 0 when absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) else 0

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    @property
    def n_ctx_train(self) -> int:
        """Tokens that the model was trained on, 0 when it does not say."""
        return self.number(f"{self.architecture}.context_length")

    @property
    def n_embd(self) -> int:
        return self.number(f"{self.architecture}.embedding_length")


def read_gguf(path: str) -> Gguf:
    """Read the header of a GGUF file. Blocks for file I/O (some 100 ms for a large vocabulary).

    Raises ModelNotLoadable when the file is missing, no GGUF, or damaged.
    """
    try:
        with Path(path).open("rb") as file:
            header = read_header(file)
            return Gguf(
                metadata=header.metadata,
                n_params=count_weights(file, header.n_tensors),
                n_tensors=header.n_tensors,
                n_header_bytes=file.tell(),
                n_file_bytes=Path(path).stat().st_size,
            )
    except OSError as error:
        raise ModelNotLoadable(f"cannot read the model file {path}: {error.strerror}") from error
    except NotGguf as error:
        raise ModelNotLoadable(f"{path} is not a GGUF model file: {error}") from error
