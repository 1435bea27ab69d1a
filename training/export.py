"""A checkpoint in transformers' layout: python -m training.export out_dir=OUT_DIR folder=FOLDER"""

if __name__ == "__main__":
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

    # --help and mistakes end here, before torch, which takes seconds to import
    from cli.help import read_keys
    from configs.export import HELP, ExportConfig

    asked = read_keys(HELP, ExportConfig)

from pathlib import Path

from cli.errors import user_errors
from configs.export import ExportConfig
from configs.gpt2 import WHOLE
from training.disk.gpt2 import write
from training.disk.whole_checkpoint import load
from training.ranks.next_commands import load_command


def main(config: ExportConfig) -> None:
    with user_errors():
        saved = load(Path(config.out_dir) / config.checkpoint)
        folder = Path(config.folder)
        write(folder, saved.weights, saved.model_config, saved.tokenizer.kind == "gpt2")
        print(f"{folder / WHOLE}: {saved.path}, iteration {saved.iteration}")
        print(f"next, where transformers is installed: {load_command(config.folder)}")


if __name__ == "__main__":
    main(asked)
