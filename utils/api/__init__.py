"""The HTTP contract: requests, responses, errors and the OpenAPI document."""
