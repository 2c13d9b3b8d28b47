"""The model: its shape (`spec.py`), its weights (`weights.py`) and its one forward pass (`decoder.py`)."""

from minivllm.model.decoder import Decoder
from minivllm.model.spec import ModelSpec
from minivllm.model.weights import LayerWeights, LoadedModel, Weights, load, random_weights

__all__ = ["Decoder", "LayerWeights", "LoadedModel", "ModelSpec", "Weights", "load", "random_weights"]
