"""The checks of a target type that are about what `with stitched` opens for it."""

from __future__ import annotations

from typing import Any

from weave.errors import StitchedModuleException
from weave.testing.suites.base import expect, on_loop
from weave.testing.suites.target_graph import TargetSuiteBase


class BodyError(Exception):
    """What is raised inside `with stitched`."""


class ResourceChecks(TargetSuiteBase):
    """Checks of `TargetTypeSuite`."""

    def test_resources_are_opened_anew(self, driver: str) -> None:
        """A graph is entered twice; both times it works, and in between nothing is open."""
        example = self._examples[0]
        stitched = self.knot(example)
        for time in ("first", "second"):
            for out in self.drive(driver, stitched, example, example):
                self.check(out, example, f"the {time} time it is entered")
            self.settled(f"after the {time} time it was entered")

    def test_resources_stay_as_many(self, driver: str) -> None:
        """Neither a run nor entering once more opens anything more. (As far as `unfinished()` tells.)"""
        example = self._examples[0]
        stitched = self.knot(example)
        counts: list[int] = []

        def count(*_: Any) -> None:
            counts.append(len(list(self.unfinished())))

        if driver == "inline":
            self.needs_no_loop()
            with stitched:
                count()
                with stitched:
                    count()
                    count(stitched(*self.given(example), **dict(example.kwargs)))
        else:

            async def main() -> None:
                async with stitched:
                    count()
                    async with stitched:
                        count()
                        count(await self.arun(stitched, example))

            on_loop(driver, main)
        expect(len(set(counts)) == 1, f"open after entering, entering again, running: {counts}")
        self.settled("after it was left")

    def test_resources_belong_to_a_graph(self, backend: str) -> None:
        """Two graphs are open; when one is closed, the other works on."""
        example = self._examples[0]
        one, other = self.knot(example), self.knot(example)

        async def main() -> None:
            async with other:
                async with one:
                    self.check(await self.arun(one, example), example, "two graphs open")
                self.check(await self.arun(other, example), example, "another graph was closed")

        on_loop(backend, main)
        self.settled("after both were left")

    def test_resources_are_closed_after_an_error(self, driver: str) -> None:
        """What is raised inside `with stitched` comes out of it, and nothing stays open."""
        stitched = self.knot(self._examples[0])
        raised = ""
        try:
            if driver == "inline":
                self.needs_no_loop()
                with stitched:
                    raise BodyError
            else:

                async def main() -> None:
                    async with stitched:
                        raise BodyError

                on_loop(driver, main)
        except BodyError:
            raised = "BodyError"
        expect(raised, "an error inside `with stitched` was swallowed by the context manager of the resources")
        self.settled("after an error inside `with stitched`")

    def test_resources_missing(self, driver: str) -> None:
        """Outside of `with stitched` it does without, or says that it can't."""
        example = self._examples[0]
        stitched = self.knot(example)
        try:
            if driver == "inline":
                out = stitched(*self.given(example), **dict(example.kwargs))
            else:
                out = on_loop(driver, lambda: self.arun(stitched, example))
        except StitchedModuleException as error:
            expect(
                "not open" in str(error),
                f"outside of `with stitched`: {error!r}; read `firing.resources`, which says so",
            )
        else:
            self.check(out, example, "outside of `with stitched`")
        self.settled("outside of `with stitched`")
