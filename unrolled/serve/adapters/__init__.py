"""Models behind other servers: LitServe, Ray Serve, Triton."""
