"""Play many runs of a state machine on one store."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

B = TypeVar("B")


def play(
    machine: Callable[[asyncio.Runner, B], RuleBasedStateMachine],
    open_backend: Callable[[], AbstractAsyncContextManager[B]],
    *,
    examples: int,
) -> None:
    """What the machine does runs on an event loop that lasts as long as the store is open."""
    with asyncio.Runner() as runner:
        store = open_backend()
        backend = runner.run(store.__aenter__())
        try:
            run_state_machine_as_test(
                partial(machine, runner, backend),  # type: ignore[arg-type] # takes any factory
                settings=settings(max_examples=examples, stateful_step_count=30, deadline=None),
            )
        finally:
            runner.run(store.__aexit__(None, None, None))
