"""The roofline: parameters as the model cards have them, and each limit of a pass by itself."""

import pytest

from worker.lab.profiles import H100, L40, LLAMA_8B, LLAMA_70B_AWQ, QWEN3_0_6B, QWEN3_1_7B, QWEN3_4B, QWEN3_32B
from worker.lab.roofline import (
    BANDWIDTH_SHARE,
    FLOPS_SHARE,
    LAUNCH_MS_A_LAYER,
    LINK_SHARE,
    PASS_MS,
    Model,
    fits,
    pass_cost,
)


@pytest.mark.parametrize(
    ("model", "billions", "gigabytes"),
    [
        (QWEN3_32B, 32.8, 65.5),
        (QWEN3_4B, 4.0, 8.0),
        (QWEN3_1_7B, 1.72, 3.44),
        (QWEN3_0_6B, 0.6, 1.2),
        (LLAMA_8B, 8.03, 16.1),
        (LLAMA_70B_AWQ, 70.6, 39.8),
    ],
)
def test_the_models_are_as_large_as_their_cards_and_files_say(model: Model, billions: float, gigabytes: float) -> None:
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert model.weight_bytes / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_keys_and_values_are_as_the_configurations_say() -> None:
    assert QWEN3_32B.kv_bytes == 64 * 2 * 8 * 128 * 2
    assert LLAMA_70B_AWQ.kv_bytes == 80 * 2 * 8 * 128 * 2


def test_a_few_tokens_cost_the_reading_of_the_weights_on_all_devices() -> None:
    cost = pass_cost(QWEN3_32B, L40, 4)
    assert cost.floor_ms == pytest.approx(QWEN3_32B.read_bytes / (4 * 864e9 * BANDWIDTH_SHARE) * 1e3)
    assert cost.token_ms * 8 < cost.floor_ms < cost.token_ms * 400


def test_a_small_model_on_a_fast_device_is_bound_by_its_launches() -> None:
    assert pass_cost(QWEN3_0_6B, H100).floor_ms == 28 * LAUNCH_MS_A_LAYER


def test_a_token_costs_two_operations_a_parameter() -> None:
    assert pass_cost(LLAMA_8B, L40).token_ms == pytest.approx(2 * LLAMA_8B.multiplied / (181e12 * FLOPS_SHARE) * 1e3)
    assert LLAMA_8B.parameters - LLAMA_8B.multiplied == 4096 * 128256  # the embedding is looked up


def test_context_is_read_and_divided_like_the_weights() -> None:
    assert pass_cost(QWEN3_32B, L40, 4).context_token_ms == pytest.approx(
        pass_cost(QWEN3_32B, L40).context_token_ms / 4
    )


def test_one_device_has_nobody_to_talk_to() -> None:
    cost = pass_cost(LLAMA_8B, L40)
    assert (cost.fixed_ms, cost.link_token_ms) == (PASS_MS, 0)


def test_each_layer_reduces_twice_around_a_ring() -> None:
    cost = pass_cost(QWEN3_32B, L40, 4)
    assert cost.fixed_ms == pytest.approx(PASS_MS + 128 * 0.040)
    assert cost.link_token_ms == pytest.approx(128 * 1.5 * 5120 * 2 / (32e9 * LINK_SHARE) * 1e3)


def test_what_fits_counts_weights_and_keys_and_values_of_all_models() -> None:
    assert not fits([QWEN3_32B], L40, 1, 0)
    assert fits([QWEN3_32B, QWEN3_1_7B], L40, 4, 64 * 2048)
    assert not fits([QWEN3_32B], H100, 1, 64 * 512)  # the weights do, these keys and values beside them do not
    assert fits([QWEN3_32B], H100, 1, 8 * 512)
    assert fits([LLAMA_70B_AWQ], H100, 1, 64 * 512)
