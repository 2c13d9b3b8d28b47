"""What goes wrong when one setting is to be changed."""

from mutants import Mutant

SOLUTION = "max_num_seqs=6"

MUTANTS = {
    "00.setting": [
        Mutant("changes nothing", (f".replace({SOLUTION})", ""), says="nothing differs"),
        Mutant("changes two things", (SOLUTION, f"{SOLUTION}, block_size=8"), says="change one"),
        Mutant("gives more memory", (SOLUTION, "num_blocks=96"), says="not what B waits for"),
        Mutant("gives more tokens per tick", (SOLUTION, "max_num_batched_tokens=64"), says="not what B waits for"),
        Mutant("gives one seat more", (SOLUTION, "max_num_seqs=2"), says="seats for all six"),
        Mutant("gives the number alone", (f"START.replace({SOLUTION})", "6"), says="EngineConfig, not a int"),
    ],
}
