"""The inspector's page, and the service that answers with models over HTTP."""
