"""Model servers in containers: all that imports the docker library."""
