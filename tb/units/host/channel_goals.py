"""Goals of a random test of the channel registers."""

import enum

__all__ = ["Goal"]


class Goal(enum.Enum):
    """Situations that the test must meet."""

    METHOD_ERROR = "a method error was recorded"
    COPY_ERROR = "a copy error was recorded"
    TASK_ERROR = "a task error was recorded"
    LATE_METHOD = "a method was refused behind an error"
    SECOND = "a second error was recorded"
    BEYOND = "an error was dropped behind two"
    TOGETHER = "a copy and a task failed in the same cycle"
    BEHIND_METHOD = "a failure waited for a method error"
    BEHIND_CLEAR = "a failure waited for a clear"
    HELD_ON = "a failure before a clear, not yet recorded, kept a channel halted"
    BY_REGISTER = "an error was cleared by INTR"
    BY_METHOD = "an error was cleared by CLEAR_FAULTED"
    NO_TARGET = "CLEAR_FAULTED had a target that was not built"
    NOT_HALTED = "CLEAR_FAULTED had no effect"
    NEXT_SHOWN = "a clear showed the second error"
    RESUMED = "a channel went on"
    REWRITTEN = "a rewritten method went on"
    NOT_CLEARED = "a write of INTR had no effect"
    IGNORED = "a write of METHOD0 or DATA0 had no effect"
    REWRITE_WAITS = "a write of METHOD0 or DATA0 waited for an error"
    START = "a channel started"
    DROPS = "a start dropped an error"
    LATE_FAILURE = "a channel started halted"
    FORGETS = "a start cleared METHODS"
    FORGETS_OBJECTS = "after a start, an object was bound, and others were no longer"
    RESTART_WAITS = "a start waited for operations"
    FAILURE_WAITS = "a start waited for the record of a failure"
    EDIT_WAITS = "`edit` waited"
    READ_MORE = "CAUSE.MORE was read"
    READ_SECOND_CODES = "INTR_1 was read"
    FORWARDED = "a channel executed methods in consecutive cycles"
