"""Mutants of `hw` and `driver`: small errors in the source that a test must detect.

    make mutate ARGS='[--sample N] [--seed N] [--jobs N] [--proofs] [--list] PATH[:LINE] ...'

`sites` finds them in the syntax tree. `switch` contains both versions of a place at run time. A
hardware mutant is an input of a multiplexer that a plusarg controls, so all mutants of a unit are
in one build; a mutant that changes the elaboration is built separately. `plugin` loads the changed
sources into pytest. `run` runs the tests of a unit (`units.toml`) for one mutant after another;
`fates` says what became of a mutant by the way in which a test failed, `limits` how long a test may
take.
Survivors that do not indicate a gap in the tests are listed in `explained.toml`, with the reason.
"""
