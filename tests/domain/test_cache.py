"""The bounded cache of derived values."""

from service.domain.cache import Cache


class Square:
    """Computes squares and remembers which it computed."""

    def __init__(self, size: int) -> None:
        self.cache, self.computed = Cache(size), list[int]()

    def of(self, number: int) -> int:
        return self.cache.get_or_compute(number, lambda: self.compute(number))

    def compute(self, number: int) -> int:
        self.computed.append(number)
        return number * number


def test_a_value_is_computed_once() -> None:
    square = Square(8)
    assert [square.of(3), square.of(3)] == [9, 9]
    assert square.computed == [3]


def test_a_value_that_is_used_stays_and_one_that_is_not_goes() -> None:
    square = Square(4)
    for number in range(100):
        square.of(number)
        square.of(-1)
    assert square.computed.count(-1) == 1
    square.of(0)
    assert square.computed.count(0) == 2


def test_a_cache_never_holds_more_than_its_size() -> None:
    square = Square(4)
    for number in range(100):
        square.of(number)
    before = len(square.computed)
    for number in range(100):
        square.of(number)
    assert len(square.computed) - before >= 100 - 4


def test_none_is_a_value_too() -> None:
    cache, calls = Cache(), list[int]()
    assert cache.get_or_compute("key", lambda: calls.append(1)) is None
    assert cache.get_or_compute("key", lambda: calls.append(1)) is None
    assert calls == [1]
