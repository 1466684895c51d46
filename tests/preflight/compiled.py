"""`python -m tests.preflight.compiled`: writes the compiled compatibility table anew."""

from console.checks.preflight.compatibility import TABLE, compiled

if __name__ == "__main__":
    TABLE.with_suffix(".json").write_text(compiled(), encoding="utf-8")
