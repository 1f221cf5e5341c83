"""`mobile-sam info`: what the service is."""

from __future__ import annotations

from dataclasses import asdict

from mobile_sam_client import Info
from mobile_sam_client._commands import options
from mobile_sam_client._commands.connection import IMPATIENT, TIMEOUT, address, client_of
from mobile_sam_client._commands.output import tell, tell_json
from mobile_sam_client._commands.readiness import Readiness, readiness

EXAMPLES = options.examples("mobile-sam info", "mobile-sam info --url https://sam.example.org --json")


def info(as_json: options.Json = False, url: options.Url = options.DEFAULT_URL, local: options.Local = False) -> None:
    """Say what the service is: its version, weights, engine and limits, and whether it is ready."""
    with address(url, local) as found, client_of(IMPATIENT, found) as client:
        said = client.info()
        state = readiness(client.url, TIMEOUT)
        if as_json:
            tell_json({"url": client.url, "ready": state.ready, **asdict(said)})
        else:
            _tell(said, state, client.url)


def _tell(said: Info, state: Readiness, url: str) -> None:
    weights = said.weights.name if said.weights else "unknown"
    tell(f"service   {url}, version {said.version}")
    tell(f"state     {'ready' if state.ready else f'not ready: {state.words}'}")
    tell(f"weights   {weights}" + (f" (sha256 {said.weights.sha256[:12]})" if said.weights else ""))
    if said.weights and said.weights.note:
        tell(f"          {said.weights.note}")
    engine = f"encoder {said.engine.encoder}, decoder {said.engine.decoder}" if said.engine else "unknown"
    tell(f"engine    {engine}")
    versions = ", ".join(map(str, said.model_versions)) or "none yet"
    tell(f"versions  {versions}" + (" (the last unless asked for another)" if len(said.model_versions) > 1 else ""))
    tell(f"API key   {'needed: MOBILE_SAM_API_KEY' if said.key_needed else 'not needed'}")
    tell(f"limits    {said.max_image_pixels / 1e6:g} megapixels an image")
    tell(f"          {said.max_body_bytes / 2**20:g} MiB and {said.max_objects} objects a request")
