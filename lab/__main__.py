"""`python -m lab`: the lab's commands without the rest of the product."""

from lab.cli import lab

lab(prog_name="lab")
