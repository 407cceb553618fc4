"""Tools of the project, behind targets of the Makefile, and their tests."""
