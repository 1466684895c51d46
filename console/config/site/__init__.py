"""The site file, and services as an operator writes them."""
