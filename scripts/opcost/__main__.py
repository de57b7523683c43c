"""`python -m opcost` is `opcost`."""

from opcost.commands import main

if __name__ == "__main__":
    main(prog_name="opcost")
