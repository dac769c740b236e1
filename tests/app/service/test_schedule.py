"""Which requests go into the next pass: nobody starves, long texts delay short ones little, and passes stay short."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from app.service.schedule import FEW, PAUSE, Queued, comes_too_late, next_pass

LIMIT = 32


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[Queued], dict[str, int | None]]:
    """Requests in any state, and the number of inputs of each; a part of a long text has at most a whole pass's."""
    queued, inputs = [], {}
    for i in range(draw(st.integers(0, 20))):
        first = draw(st.none() | st.tuples(st.floats(0, 9), st.integers(1, 9)))
        queued.append(Queued(f"t{i}", draw(st.floats(0, 9)), first, draw(st.integers(0, 900)), draw(st.booleans())))
        inputs[f"t{i}"] = draw(st.none() | st.integers(0, LIMIT))
    return queued, inputs


@given(requests())
def test_a_pass_has_few_inputs_beside_the_longest_wait_and_the_oldest_drafts_which_are_in_every_pass(
    given: tuple[list[Queued], dict[str, int | None]],
) -> None:
    queued, inputs = given
    chosen = next_pass(queued, LIMIT, inputs.__getitem__)
    assert len(set(chosen)) == len(chosen)
    assert all(inputs[tab] for tab in chosen)
    always = 2 * LIMIT  # the longest wait, and the oldest growing drafts
    assert sum(inputs[tab] or 0 for tab in chosen) <= LIMIT + always

    chosen = next_pass(queued, LIMIT, lambda tab: LIMIT)
    in_pass = [request for request in queued if request.tab in chosen]
    if waiting := [(request.too_late, request.since) for request in queued if request.first is None]:
        assert min(waiting) in [(request.too_late, request.since) for request in in_pass]
    if growing := [request.first for request in queued if request.first is not None]:
        assert min(growing) in [request.first for request in in_pass]


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), min_size=1, max_size=30))
def test_every_request_is_served_in_as_many_passes_as_its_inputs_need(works: list[tuple[int, bool]]) -> None:
    """Every tab has some text to read, then four steps of drafts of three rows; some begin later. Nobody starves."""
    left = {f"t{i}": inputs for i, (inputs, _) in enumerate(works)}
    steps, drafted, passes = dict.fromkeys(left, 0), {}, 0
    while left:
        passes += 1
        queued = [
            Queued(tab, since=i, first=drafted.get(tab), unread=left[tab])
            for i, tab in enumerate(sorted(left, key=lambda tab: int(tab[1:])))
        ]
        chosen = next_pass(queued, LIMIT, lambda tab: 3 if tab in drafted else min(left[tab], LIMIT))
        assert chosen
        for tab in chosen:
            if tab not in drafted:
                left[tab] -= min(left[tab], LIMIT)
                if not left[tab]:
                    left[tab], drafted[tab] = 3, (float(passes), 1)
            else:
                steps[tab] += 1
                if steps[tab] == 4:
                    del left[tab]
        assert passes <= sum(inputs // LIMIT + 1 + 4 for inputs, _ in works)


@settings(max_examples=60)
@given(
    long=st.lists(st.integers(LIMIT + 1, 5000), min_size=1, max_size=4),
    short=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_a_long_text_delays_short_ones_by_one_part_only(long: list[int], short: list[int], order: Random) -> None:
    """Whoever came first, one pass has one part of one long text, and every short text that fits beside it."""
    texts = {f"long{i}": unread for i, unread in enumerate(long)} | {f"s{i}": unread for i, unread in enumerate(short)}
    since = order.sample(range(len(texts)), len(texts))
    queued = [Queued(tab, since=at, unread=unread) for at, (tab, unread) in zip(since, texts.items(), strict=True)]
    chosen = next_pass(queued, LIMIT, lambda tab: min(texts[tab], LIMIT))
    assert sum(tab.startswith("long") for tab in chosen) <= 1
    assert {tab for tab in texts if tab.startswith("s")} <= {*chosen}


def test_half_of_a_pass_is_for_growing_drafts_and_each_half_lends_what_it_does_not_need() -> None:
    short = [Queued(f"s{i}", since=i, unread=FEW) for i in range(30)]
    growing = [Queued(f"g{i}", since=50 + i, first=(float(i), 1)) for i in range(10)]
    both = next_pass([*growing, *short], LIMIT, lambda tab: 2 if tab[0] == "s" else 4)
    assert [tab for tab in both if tab[0] == "g"] == ["g0", "g1", "g2", "g3"]
    assert len(next_pass(short, LIMIT, lambda tab: 2)) == 1 + 15
    assert len(next_pass(growing, LIMIT, lambda tab: 4)) == 8


def test_requests_that_wait_for_room_or_have_ended_take_no_inputs() -> None:
    queued = [Queued(f"t{i}", since=i) for i in range(3)]
    assert next_pass(queued, LIMIT, {"t0": None, "t1": 0, "t2": 5}.__getitem__) == ["t2"]
    assert next_pass([], LIMIT, lambda tab: 1) == []


def test_a_request_that_the_next_key_will_overtake_comes_last() -> None:
    """A typist presses a key every 0.125 s and a pass takes 0.06 s: at 0.11 s its result would come too late."""
    assert not comes_too_late(age=0.01, between=0.125, seconds=0.06)
    assert comes_too_late(age=0.11, between=0.125, seconds=0.06)
    assert not comes_too_late(age=0.5, between=0.125, seconds=0.06), "the typist rests"
    assert not comes_too_late(age=1.2, between=PAUSE, seconds=0.06)
    queued = [Queued("fast", since=0, too_late=True), *(Queued(f"t{i}", since=1 + i) for i in range(40))]
    assert "fast" not in next_pass(queued, LIMIT, lambda tab: 1)
