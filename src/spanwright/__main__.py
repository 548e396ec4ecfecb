"""`python -m spanwright` is `spanwright`."""

from spanwright.cli.main import main

if __name__ == "__main__":
    main()
