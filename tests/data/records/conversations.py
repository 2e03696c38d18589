"""A small tokenizer with a chat template, and conversations for it."""

import json
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{{ message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MARKED = (
    "{{ bos_token }}"
    "{%- if tools %}{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message.content + '<|im_end|>' }}{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
)
"""One that says itself what the assistant writes."""

SPECIAL = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")

CHATS: list[list[dict[str, Any]]] = [
    [
        {"role": "user", "content": "to be or not to be?"},
        {"role": "assistant", "content": "that is the question"},
    ],
    [
        {"role": "system", "content": "answer in one word"},
        {"role": "user", "content": "caf\u00e9 or \U0001f375?"},
        {"role": "assistant", "content": "caf\u00e9"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "\U0001f375  \n\n twice"},
    ],
    [{"role": "user", "content": "nobody answers"}],
]


def tokenizer_folder(folder: Path, template: str = CHATML) -> Path:
    """The files of a tokenizer of pieces of words, as a Hugging Face folder has them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    words = ["to be or not to be, that is the question", "user assistant answer again twice"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(words, trainer)
    begins = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begins])
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": {"content": "<|eos|>", "__type": "AddedToken"},
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
