"""W5: what is read off the batches of many runs at once."""

from benchmarks.crowd import IDEAL, Crowd, rows


def test_wall_time_is_in_units_of_the_requests() -> None:
    """The best wall time, the median of CPU time, and the memory of the first batch alone."""
    ideal = IDEAL * 1e9
    found = {"ours": [Crowd(ideal * 2, 3e3, 2048.0), Crowd(ideal, 1e3, 0.0), Crowd(ideal * 4, 9e3, 0.0)]}
    wall, cpu, memory = rows(1000, found)
    assert (1.0, 3.0, 2.0) == tuple(row.values["ours"] for row in (wall, cpu, memory))
    assert ("x ideal", "us", "KiB") == (wall.unit, cpu.unit, memory.unit)


def test_the_ideal_is_what_the_requests_take() -> None:
    """Three steps of a tool call and a last answer: four requests of 50 ms, one after another."""
    assert 0.2 == IDEAL
