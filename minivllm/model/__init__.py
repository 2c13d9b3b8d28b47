"""The model: its shape (`spec.py`), its weights (`loading.py`) and its one forward pass (`decoder.py`)."""

from minivllm.model.decoder import Decoder
from minivllm.model.loading import LoadedModel, load
from minivllm.model.spec import ModelSpec
from minivllm.model.weights import LayerWeights, Weights, random_weights

__all__ = ["Decoder", "LayerWeights", "LoadedModel", "ModelSpec", "Weights", "load", "random_weights"]
