"""What would stop a build of hours, read from its sources and its Dockerfile before it starts."""
