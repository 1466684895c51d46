"""The program. docs/explanation/architecture.md tells what each of its packages is for."""

VERSION = "0.1.0"
