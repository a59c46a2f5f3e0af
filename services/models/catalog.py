"""What is known of a model beside its state: from the configuration and from the registry. Pure."""

from dataclasses import dataclass

from schemas.lifecycle import ModelStatus
from services.models.config import ModelsSettings
from services.models.lifecycle import Verdict


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What the configuration says of a model. path: of its GGUF file."""

    key: str
    name: str
    path: str
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Registered:
    """What the registry knows of a model. created_at_ms: when it was first seen (Unix time).
    digest: sha256 of its file in hex, empty until it is computed."""

    created_at_ms: int
    digest: str = ""


def spec_of(settings: ModelsSettings) -> ModelSpec:
    """The one model of single-model mode."""
    return ModelSpec(
        key=settings.model_key,
        name=settings.model_name,
        path=settings.model_path,
        aliases=settings.aliases,
        tags=settings.tags,
    )


def status_of(
    spec: ModelSpec, registered: Registered, verdict: Verdict, changed_at_ms: int
) -> ModelStatus:
    """What gateways are told."""
    return ModelStatus(
        model_key=spec.key,
        name=spec.name,
        aliases=spec.aliases,
        tags=spec.tags,
        path=spec.path,
        digest=registered.digest,
        status=verdict.status,
        progress=verdict.progress,
        error=verdict.error,
        created_at_s=registered.created_at_ms // 1000,
        changed_at_s=changed_at_ms // 1000,
    )
