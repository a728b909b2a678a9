"""The families with which everything is tested that could depend on the family. All have a certificate
(`tests/tasks/model_check/test_findings.py`), and those that take text alone are in `models/test_text_families.py`."""

MATRIX = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "internvl", "qwen3_5", "qwen2_5", "qwen3", "llama")
