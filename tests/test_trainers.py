"""The callbacks of docs/how_to/measure_energy.md, in the trainers that they are for.

They need `pip install accelerate lightning`, and are skipped without.
"""

import re
import textwrap

import pytest
import torch
from opcost.power import windows

from tests.documents import ROOT
from tests.simulated_nvml.card import build

PAGE = (ROOT / "docs/how_to/measure_energy.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def simulated(tmp_path, monkeypatch):
    """A card that idles, in the sampler's process."""
    if build(tmp_path) is None:
        pytest.skip("no C compiler (cc) to build the simulated NVML with")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(windows, "_shared", None)
    yield
    if windows._shared is not None:
        windows._shared.close()


def callback(name):
    """The class of this name on the page, whose blocks are fenced or indented."""
    fenced = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    indented = re.findall(r"((?:^    .*\n|^\n)+)", PAGE, re.MULTILINE)
    blocks = [*fenced, *map(textwrap.dedent, indented)]
    [block] = [each for each in blocks if f"class {name}(" in each and "import" in each]
    namespace = {}
    exec(block, namespace)
    return namespace[name]


def epochs_in(printed):
    return re.findall(r"^epoch (\d): [\d.]+ m?s, cuda:0 ", printed, re.MULTILINE)


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        tokens = torch.full((8,), number)
        return {"input_ids": tokens, "labels": tokens}


def test_the_trainer_of_transformers_tells_the_energy_of_each_epoch(tmp_path, capsys):
    pytest.importorskip("accelerate")
    import transformers

    config = transformers.GPT2Config(
        vocab_size=8, n_embd=8, n_head=1, n_layer=1, bos_token_id=0, eos_token_id=0
    )
    settings = transformers.TrainingArguments(
        tmp_path / "out", num_train_epochs=2, report_to=[], save_strategy="no", disable_tqdm=True
    )
    transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        settings,
        train_dataset=Tokens(),
        callbacks=[callback("Energy")()],
    ).train()
    printed = capsys.readouterr().out
    assert epochs_in(printed) == ["0", "1"]
    assert "cuda:0" in printed


def test_lightning_tells_the_energy_of_each_epoch(capsys):
    lightning = pytest.importorskip("lightning")

    class Linear(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _number):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = lightning.Trainer(
        max_epochs=2,
        callbacks=[callback("EnergyOfLightning")()],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Linear(), torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4))
    printed = capsys.readouterr().out
    assert epochs_in(printed) == ["0", "1"]
    assert "cuda:0" in printed
