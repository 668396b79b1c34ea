"""Input recipe for time series: past values, time features, and future values in training."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe


def _past_length(ask: Ask) -> int:
    lags = ask.setting("lags_sequence", default=())
    context = ask.setting("context_length", "prediction_length", default=512)
    return int(context) + (max(lags) if lags else 0)


def _channels(ask: Ask) -> tuple[int, ...]:
    count = ask.setting("num_input_channels", "input_size", default=1)
    many = ask.setting("num_input_channels") is not None or count > 1
    return (int(count),) if many else ()


def past_values(ask: Ask) -> Any:
    """Return (batch, times) or (batch, times, series)."""
    return ask.floats(ask.batch, _past_length(ask), *_channels(ask))


def past_observed_mask(ask: Ask) -> Any:
    """Return ones: every value was observed."""
    return ask.filled(*ask.given("past_values").shape)


def _time_features(ask: Ask, length: int) -> Any:
    return ask.floats(ask.batch, length, int(ask.setting("num_time_features", default=0)))


def past_time_features(ask: Ask) -> Any:
    """Return (batch, times, features): what is known about the times of the past."""
    return _time_features(ask, _past_length(ask))


def future_time_features(ask: Ask) -> Any:
    """Return (batch, times, features): what is known about the times to predict."""
    return _time_features(ask, int(ask.setting("prediction_length", default=1)))


def future_values(ask: Ask) -> Any:
    """Return (batch, times): what the model is trained to predict."""
    if "future_time_features" not in ask.parameters:
        return None
    return ask.floats(ask.batch, int(ask.setting("prediction_length", default=1)), *_channels(ask))


def static_categorical_features(ask: Ask) -> Any:
    """Return (batch, features): the class of each series."""
    count = ask.setting("num_static_categorical_features", default=0)
    return ask.filled(ask.batch, int(count), value=0) if count else None


def static_real_features(ask: Ask) -> Any:
    """Return (batch, features): numbers that belong to each series."""
    count = ask.setting("num_static_real_features", default=0)
    return ask.floats(ask.batch, int(count)) if count else None


def past_values_padding(ask: Ask) -> Any:
    """Return zeros: no value is padding."""
    return ask.filled(*ask.given("past_values").shape, value=0)


def freq(ask: Ask) -> Any:
    """Return (batch, 1): how often each series is sampled, as a class."""
    return ask.filled(ask.batch, 1, value=0)


RECIPE = Recipe(gives={
    "past_values": past_values, "past_observed_mask": past_observed_mask, "past_time_features": past_time_features,
    "future_time_features": future_time_features, "future_values": future_values,
    "static_categorical_features": static_categorical_features, "static_real_features": static_real_features,
    "past_values_padding": past_values_padding, "freq": freq,
})  # fmt: skip
