"""Mutants of `hw` and `driver`: small wrong changes of the source that some test has to notice.

    make mutate ARGS='[--sample N] [--seed N] [--jobs N] [--proofs] [--list] PATH[:LINE] ...'

`sites` finds them in the syntax tree, `switch` holds both versions of a place when it runs. A
mutant of the hardware is an arm of a multiplexer that a plusarg selects, so all mutants of a unit
are in one simulation; one that changes the elaboration itself is built anew. `plugin` loads the
changed sources into pytest, `run` tries one mutant after the other with the tests of its unit
(`units.toml`). Survivors that are no hole in the tests stand in `explained.toml`, with the reason.
"""
