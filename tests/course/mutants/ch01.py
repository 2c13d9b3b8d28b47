"""What goes wrong when K and V are counted."""

from mutants import Mutant

MUTANTS = {
    "01.kv_bytes": [
        Mutant("forgets the values", ("return 2 * ", "return "), says="a key *and* a value"),
        Mutant("forgets the layers", (' config["num_hidden_layers"] *', ""), says="the layers are missing"),
        Mutant("forgets the type", (' * BYTES[config["torch_dtype"]]', ""), says="both give the same"),
        Mutant(
            "takes the name of the type",
            ('BYTES[config["torch_dtype"]]', 'config["torch_dtype"]'),
            says="a number of bytes",
        ),
        Mutant("forgets the tokens", (" * tokens", ""), says="multiply by the tokens"),
        Mutant(
            "takes every type for 16 bits", ('BYTES[config["torch_dtype"]]', "2"), says="float32 numbers take 4 bytes"
        ),
        Mutant("counts query heads", ('config.get("num_key_value_heads", heads)', "heads"), says="8 KV heads are kept"),
        Mutant(
            "asks for KV heads that are not named",
            ('config.get("num_key_value_heads", heads)', 'config["num_key_value_heads"]'),
            says="every head has its own",
        ),
        Mutant(
            "works head_dim out although it is named",
            ('config.get("head_dim", config["hidden_size"] // heads)', 'config["hidden_size"] // heads'),
            says="head_dim 128",
        ),
    ],
    "01.positions": [
        Mutant("counts the last token", ("prompt + new - 1", "prompt + new"), says="never fed back"),
        Mutant("lets the text stand still", ("prompt + k for k", "prompt for k"), says="grows by one"),
        Mutant(
            "begins one token late",
            ("prompt + k for k", "prompt + k + 1 for k"),
            says="the first step computes the prompt alone",
        ),
        Mutant("takes one for the other", ("if cached", "if not cached"), says="with a cache: the engine computes"),
    ],
}
