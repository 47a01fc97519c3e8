"""`python -m unrolled` is the `unrolled` command."""

from unrolled.cli import main

if __name__ == "__main__":
    main()
