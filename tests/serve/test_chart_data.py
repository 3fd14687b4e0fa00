"""The statistics of the last minutes, as the charts of the page show them."""

from millpond.serve.chart_data import Sample, as_json


def sample(at: float, batches: int, batch_ms: float) -> Sample:
    return Sample(at, {"f": batches * 10}, {"f": batches}, {"f": batch_ms}, {"f": None})


def test_a_batch_time_is_shown_once_and_an_old_one_never() -> None:
    samples = [sample(0.0, 3, 127.0), sample(2.0, 3, 127.0), sample(4.0, 4, 20.0), sample(6.0, 4, 20.0)]
    found = as_json(samples)["flows"]["f"]
    assert found["batch_ms"] == [0.0, 0.0, 20.0, 0.0]
    assert found["rows"] == [30, 30, 40, 40]
