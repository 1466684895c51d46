"""Model servers in containers: all modules that import the docker library."""
