"""The supplied core: executes the programs of `hw/sm/isa.py` behind the SM port."""
