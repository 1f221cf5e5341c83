# Redis and Prometheus from Debian, for docker-compose.yml in place of their own images.
FROM mobile-sam-test-debian:12
RUN apt-get update && apt-get install --yes --no-install-recommends prometheus redis-server wget
RUN install --directory --owner=nobody /prometheus
