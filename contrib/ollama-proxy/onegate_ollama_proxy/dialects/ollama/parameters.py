"""What becomes of each parameter of Ollama's routes; the README's table is made of this."""

from onegate_ollama_proxy.ask import Fate, Parameter

_H, _L, _R = Fate.HONOURED, Fate.HARMLESS, Fate.REFUSED

PARAMETERS = (
    Parameter("model", _H, "a name that the gate serves, or one of `models` in the configuration"),
    Parameter("messages", _H, "text, images, thinking, tool calls and their answers"),
    Parameter("prompt", _H, "empty: the model is only loaded"),
    Parameter("input", _H, "one text or several"),
    Parameter("system", _H, "a first message of that role"),
    Parameter(
        "context", _H, "as an earlier answer of this proxy gave it; Ollama's own is an error"
    ),
    Parameter("images", _H, "where the model sees"),
    Parameter("suffix", _H, "where the model inserts"),
    Parameter("raw", _H, "no template is put around the prompt"),
    Parameter("stream", _H, "absent means true"),
    Parameter("format", _H, '`"json"` or a JSON schema; where the engine can'),
    Parameter("tools", _H, "functions; where the model can"),
    Parameter("think", _H, "where the model thinks"),
    Parameter("logprobs", _H, "where the engine can"),
    Parameter("top_logprobs", _H, "0 to 20, beside `logprobs`"),
    Parameter("truncate", _H, "what is too long is cut, with a notice; never for batch classes"),
    Parameter("dimensions", _H, "each vector is cut to so many figures and scaled to length 1"),
    Parameter("options.temperature", _H, "where the engine can"),
    Parameter("options.top_k", _H, "where the engine can"),
    Parameter("options.top_p", _H, "where the engine can; 0 means almost 0"),
    Parameter("options.min_p", _H, "where the engine can"),
    Parameter("options.seed", _H, "where the engine can; -1 means none"),
    Parameter("options.stop", _H, "one text or up to 16; empty ones are left out"),
    Parameter("options.presence_penalty", _H, "where the engine can"),
    Parameter("options.frequency_penalty", _H, "where the engine can"),
    Parameter("options.repeat_penalty", _H, "where the engine can"),
    Parameter(
        "options.num_predict", _H, "lowered to the class's maximum and to what the context leaves"
    ),
    Parameter("options.num_ctx", _L, "up to the model's own context; more is an error"),
    Parameter("options.num_batch", _L, "the gate decides how the model is loaded"),
    Parameter("options.num_gpu", _L, "the gate decides how the model is loaded"),
    Parameter("options.main_gpu", _L, "the gate decides how the model is loaded"),
    Parameter("options.use_mmap", _L, "the gate decides how the model is loaded"),
    Parameter("options.use_mlock", _L, "the gate decides how the model is loaded"),
    Parameter("options.low_vram", _L, "the gate decides how the model is loaded"),
    Parameter("options.num_thread", _L, "the gate decides how the model is loaded"),
    Parameter("options.numa", _L, "the gate decides how the model is loaded"),
    Parameter("options.draft_num_predict", _L, "the gate decides how the model is loaded"),
    Parameter("options.num_keep", _L, "nothing is shifted out of the context"),
    Parameter("options.repeat_last_n", _L, "the engine's own length is used"),
    Parameter("options.typical_p", _L, "no engine here has it"),
    Parameter("options.tfs_z", _L, "no engine here has it"),
    Parameter("options.mirostat", _L, "no engine here has it"),
    Parameter("options.mirostat_tau", _L, "no engine here has it"),
    Parameter("options.mirostat_eta", _L, "no engine here has it"),
    Parameter("options.penalize_newline", _L, "no engine here has it"),
    Parameter("keep_alive", _L, "the gate decides what stays loaded; 0 without a prompt unloads"),
    Parameter("shift", _L, "an answer ends where the context does"),
    Parameter("template", _R, "unless empty: the model's own is used"),
    Parameter("_debug_render_only", _R, "`true`: prompts are not shown"),
)

OPTIONS = "options."
HARMLESS = frozenset(row.name for row in PARAMETERS if row.fate is _L)
