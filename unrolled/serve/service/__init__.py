"""The service: models answer over HTTP, with typed endpoints, micro-batches and guards."""
