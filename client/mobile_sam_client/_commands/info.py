"""`mobile-sam info`: show the service's version, weights, engine and limits."""

from __future__ import annotations

from dataclasses import asdict

from mobile_sam_client import Info
from mobile_sam_client._commands import options
from mobile_sam_client._commands.connection import PROBE_TIMEOUT_S, make_client, probing_client, service_url
from mobile_sam_client._commands.output import print_json, print_line
from mobile_sam_client._commands.readiness import Readiness, check_readiness

EXAMPLES = options.examples("mobile-sam info", "mobile-sam info --url https://sam.example.org --json")


def info(as_json: options.Json = False, url: options.Url = options.DEFAULT_URL, local: options.Local = False) -> None:
    """Show the service's version, weights, engine, limits and readiness."""
    with service_url(url, local) as address, make_client(probing_client, address) as client:
        service_info = client.info()
        readiness = check_readiness(client.url, PROBE_TIMEOUT_S)
        if as_json:
            print_json({"url": client.url, "ready": readiness.ready, **asdict(service_info)})
        else:
            _print_info(service_info, readiness, client.url)


def _print_info(info: Info, readiness: Readiness, url: str) -> None:
    weights = info.weights.name if info.weights else "unknown"
    print_line(f"service   {url}, version {info.version}")
    print_line(f"state     {'ready' if readiness.ready else f'not ready: {readiness.message}'}")
    print_line(f"weights   {weights}" + (f" (sha256 {info.weights.sha256[:12]})" if info.weights else ""))
    if info.weights and info.weights.note:
        print_line(f"          {info.weights.note}")
    engine = f"encoder {info.engine.encoder}, decoder {info.engine.decoder}" if info.engine else "unknown"
    print_line(f"engine    {engine}")
    versions = ", ".join(map(str, info.model_versions)) or "none yet"
    print_line(f"versions  {versions}" + (" (the last is the default)" if len(info.model_versions) > 1 else ""))
    print_line(f"API key   {'needed: MOBILE_SAM_API_KEY' if info.key_needed else 'not needed'}")
    print_line(f"limits    {info.max_image_pixels / 1e6:g} megapixels an image")
    print_line(f"          {info.max_body_bytes / 2**20:g} MiB and {info.max_objects} objects a request")
