"""Text of figures within sentences: three significant digits, intervals in the unit of their middle, whole percent."""

from nearpeak.units import show


def with_article(noun: str) -> str:
    """Return a noun with its article.

    >>> with_article("token"), with_article("image")
    ('a token', 'an image')
    """
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def whole_percent(ratio: float) -> str:
    """Return a ratio in whole percent, with its sign; never a signed zero.

    >>> whole_percent(0.681), whole_percent(-0.0001), whole_percent(0.004)
    ('68 %', '0 %', '< 1 %')
    """
    if 0 < ratio < 0.005:
        return "< 1 %"
    return f"{round(100 * ratio) or 0} %"


def brief(value: float, unit: str) -> str:
    """Return a quantity with three significant digits, for sentences.

    >>> brief(0.0067342, "s"), brief(0.021, "s")
    ('6.73 ms', '21 ms')
    """
    return show(float(f"{value:.3g}"), unit)


def ends(low: float, high: float, middle: float, unit: str) -> str:
    """Return the ends of an interval in the unit in which its middle is written.

    >>> ends(0.0058, 0.0123, 0.0067, "s"), ends(0.0058, 1.23, 0.67, "s")
    ('5.8 to 12.3', '5.8 to 1,230')
    """
    number, _ = brief(middle, unit).split(" ")
    scale = float(f"{middle:.3g}") / float(number) if middle else 1.0
    return " to ".join(figure_of_three(end / scale) for end in (low, high))


def figure_of_three(value: float) -> str:
    """Return a number with three significant digits and no prefix.

    >>> figure_of_three(47.549), figure_of_three(3043.2), figure_of_three(123456.0)
    ('47.5', '3,040', '123,000')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"
